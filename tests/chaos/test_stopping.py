"""A worker that is told to stop finishes or hands back every job within its grace, whatever is away."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.processes import Process, Processes
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import TIME_SCALE, Work
from topology.address import AmqpAddress
from topology.declare import apply, connection
from topology.entities import compile_topology
from topology.names import step

APP = "tests.support.stopping_jobs"
GRACE_S = 6.0
LONG_S = 60.0
# A lease that nobody in these tests could wait for.
LONG_LEASE = {"REDRIVE_WORKER_LEASE_S": "600", "REDRIVE_WORKER_RENEW_S": "1"}
SLACK_S = 20.0


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes, LONG_LEASE | {"REDRIVE_WORKER_GRACE_S": str(GRACE_S)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def start(work: Work, *arguments: str, **options: object) -> Process:
    return work.start(*arguments, app=APP, **options)  # type: ignore[arg-type]  # its own keywords


def runs(path: Path, job: str) -> int:
    return path.read_text().count(f"{job} ") if path.exists() else 0


def until_running(path: Path, *jobs: str) -> None:
    eventually(lambda: all(runs(path, job) for job in jobs), 30, "the jobs run")


def deliveries(work: Work) -> int:
    """From the work queue; those of a message that came again are counted again. Up to 5 s late."""
    stats = (work.vhost.queue("work") or {}).get("message_stats", {})
    return int(stats.get("deliver_get", 0))


def until_delivered(work: Work, times: int) -> None:
    eventually(lambda: deliveries(work) >= times, SLACK_S, f"{times} deliveries")
    assert deliveries(work) == times


def assert_handed_back(work: Work, path: Path, job: str) -> None:
    """Run once more, never beside itself, uncounted."""
    assert work.result(job) == "done"
    assert runs(path, job) == 2
    assert "beside" not in path.read_text()
    assert work.job(job)["crashes"] == 0
    assert [attempt["outcome"] for attempt in work.attempts(job)] == ["succeeded"]
    assert work.letters() == []


def test_what_runs_finishes_and_what_waits_goes_back_unharmed(work: Work, path: Path) -> None:
    first = start(work)
    work.result(work.submit("t.add", x=1, y=1))  # from now on with the full window
    gate = path.with_name("gate")
    jobs = [work.submit("t.work_on", path=str(path), seconds=0, gate=str(gate)) for _ in range(8)]
    eventually(lambda: all(work.job(job)["state"] == "RUNNING" for job in jobs), 20, "all are claimed")

    def begun_jobs() -> list[str]:
        return [job for job in jobs if runs(path, job)]

    eventually(lambda: len(begun_jobs()) == 2, 20, "two run")
    begun = begun_jobs()
    first.send(signal.SIGTERM)
    first.wait_for_log("action=stopping")
    gate.touch()
    assert first.wait(GRACE_S + SLACK_S) == 0
    ended = {job: work.job(job)["state"] for job in jobs}
    assert ended == {job: "SUCCEEDED" if job in begun else "QUEUED" for job in jobs}
    assert work.depth("work") == len(jobs) - len(begun)
    start(work, concurrency=4)
    assert {work.result(job) for job in jobs} == {"done"}
    assert {runs(path, job) for job in jobs} == {1}
    work.until_settled()
    until_delivered(work, 1 + len(jobs) + len(jobs) - len(begun))


def test_what_does_not_finish_in_time_is_ended_and_run_by_another_at_once(work: Work, path: Path) -> None:
    """Also a task that ignores signals and its soft time limit."""
    first = start(work)
    work.result(work.submit("t.add", x=1, y=1))  # from now on with the full window
    jobs = [
        work.submit("t.work_on", path=str(path), seconds=LONG_S, again_s=0),
        work.submit("t.stubborn", path=str(path)),
    ]
    until_running(path, *jobs)
    start(work)
    assert first.terminate(GRACE_S + SLACK_S) == 0
    assert first.log.count("action=handed_back") == 2
    for job in jobs:
        assert_handed_back(work, path, job)
    work.until_settled()
    until_delivered(work, 1 + 2 * len(jobs))


def test_heartbeats_go_on_until_the_last_job_has_ended(work: Work, path: Path) -> None:
    """At a heartbeat of 3 s the broker gives up on a connection that is silent for 6 to 9."""
    url = f"{work.vhost.amqp_url}?heartbeat=3"
    # Celery sends none while it looks for neighbours, which takes as long on a busy machine.
    first = start(work, "--without-mingle", REDRIVE_AMQP_URL=url, REDRIVE_WORKER_GRACE_S="40")
    job = work.submit("t.work_on", path=str(path), seconds=12)
    until_running(path, job)
    assert first.terminate(60) == 0
    assert work.job(job)["state"] == "SUCCEEDED"
    work.until_settled()
    until_delivered(work, 1)


def test_a_second_sigterm_changes_nothing_and_sigquit_ends_what_runs(work: Work, path: Path) -> None:
    first = start(work, REDRIVE_WORKER_GRACE_S="50")
    short = work.submit("t.work_on", path=str(path), seconds=3)
    long = work.submit("t.work_on", path=str(path), seconds=LONG_S, again_s=0)
    until_running(path, short, long)
    first.send(signal.SIGTERM)
    first.wait_for_log("action=stopping")
    first.send(signal.SIGTERM)
    work.until(short, "SUCCEEDED")
    assert first.exit_code is None
    first.send(signal.SIGQUIT)
    assert first.wait(SLACK_S) == 0
    start(work)
    assert_handed_back(work, path, long)


def test_a_sigterm_that_reaches_the_pool_processes_too_is_no_crash(work: Work, path: Path) -> None:
    first = start(work)
    job = work.submit("t.work_on", path=str(path), seconds=LONG_S, again_s=0)
    until_running(path, job)
    eventually(lambda: work.job(job)["lease_cap"], 20, "that it began is on record")
    os.killpg(first.pid, signal.SIGTERM)
    assert first.wait(GRACE_S + SLACK_S) == 0
    start(work)
    assert_handed_back(work, path, job)


def test_it_stops_within_its_grace_while_postgres_is_away(
    work: Work, path: Path, proxy: Callable[..., TcpProxy]
) -> None:
    through = proxy(work.database.url)
    first = start(work, REDRIVE_DATABASE_URL=through.url, REDRIVE_WORKER_LEASE_S="5")
    work.result(work.submit("t.add", x=1, y=1))
    jobs = [work.submit("t.work_on", path=str(path), seconds=1.5) for _ in range(6)]
    until_running(path, jobs[0])
    through.refuse()
    first.wait_for_log("consuming nothing")
    assert first.terminate(GRACE_S + SLACK_S) == 0
    start(work)
    assert {work.result(job) for job in jobs} == {"done"}
    assert work.database.value("select count(*) from redrive.sample_emails") == len(jobs)
    assert work.letters() == []


def test_it_stops_within_its_grace_while_the_broker_is_away(
    work: Work, path: Path, proxy: Callable[..., TcpProxy]
) -> None:
    through = proxy(work.vhost.amqp_url)
    first = start(work, REDRIVE_AMQP_URL=through.url)
    jobs = [work.submit("t.work_on", path=str(path), seconds=3) for _ in range(2)]
    until_running(path, jobs[0])
    through.refuse()
    first.wait_for_log("Trying again in")
    begun = [job for job in jobs if runs(path, job)]
    assert first.terminate(GRACE_S + SLACK_S) == 0
    assert [work.job(job)["state"] for job in begun] == ["SUCCEEDED"] * len(begun)
    start(work)
    assert {work.result(job) for job in jobs} == {"done"}
    assert {runs(path, job) for job in jobs} == {1}
    work.until_settled()


def test_it_stops_within_its_grace_on_a_network_that_is_stuck(
    work: Work, path: Path, proxy: Callable[..., TcpProxy]
) -> None:
    through = proxy(work.vhost.amqp_url)
    first = start(work, REDRIVE_AMQP_URL=through.url)
    job = work.submit("t.work_on", path=str(path), seconds=2)
    until_running(path, job)
    through.hold()
    first.terminate(GRACE_S + SLACK_S)
    work.until(job, "SUCCEEDED")
    through.cut()
    start(work)
    work.until_settled(60)
    assert runs(path, job) == 1


def test_a_retry_that_cannot_be_published_does_not_keep_it(work: Work) -> None:
    from tests.support.worker_jobs import QUEUE, TOPOLOGY

    address = AmqpAddress.parse(work.vhost.amqp_url)
    first = start(work)
    with connection(address, "test") as opened:
        opened.channel().exchange_delete(step("work", QUEUE.ladder, QUEUE.ladder.steps - 1))
    job = work.submit("t.retry_after", seconds=75.0)  # 15 s
    first.wait_for_log("action=ladder_publish_failed")
    first.terminate(GRACE_S + SLACK_S)
    assert work.job(job)["state"] == "RETRYING"
    apply(address, compile_topology(TOPOLOGY, TIME_SCALE))
    start(work)
    assert work.result(job) == "came back with -1"
    assert [attempt["outcome"] for attempt in work.attempts(job)] == ["retry", "succeeded"]
    assert work.letters() == []


def test_it_can_be_stopped_while_it_starts(work: Work) -> None:
    worker = start(work, ready=False)
    worker.wait_for_log("Connected to amqp", 40)
    assert worker.terminate(GRACE_S + SLACK_S) == 0
    assert "Traceback" not in worker.log


def test_sighup_finishes_what_runs_and_starts_anew(work: Work, path: Path) -> None:
    celery = str(Path(sys.executable).with_name("celery"))
    argv = [celery, "-A", APP, "worker", "-n", "hup@test", "-c", "2", "-l", "INFO"]
    worker = work.processes.start("worker", argv, work.settings)
    worker.wait_for_log("ready.", 40)
    job = work.submit("t.work_on", path=str(path), seconds=2)
    until_running(path, job)
    worker.send(signal.SIGHUP)
    eventually(lambda: worker.log.count(" ready.") == 2, 40, "it is ready again")
    assert work.job(job)["state"] == "SUCCEEDED"
    assert work.result(work.submit("t.add", x=1, y=1)) == 2
    assert runs(path, job) == 1
    assert worker.terminate(GRACE_S + SLACK_S) == 0


@pytest.mark.parametrize("option", ["--max-tasks-per-child=5", "--max-memory-per-child=1"])
def test_pool_processes_that_are_replaced_lose_nothing(work: Work, path: Path, option: str) -> None:
    worker = start(work, option)
    jobs = [work.submit("t.work_on", path=str(path), seconds=0) for _ in range(24)]
    for job in jobs:
        work.until(job, "SUCCEEDED", 60)
    lines = path.read_text().splitlines()
    assert len(lines) == len(jobs)
    assert len({line.split()[1] for line in lines}) >= 4, "processes were replaced"
    assert all(work.job(job)["crashes"] == 0 for job in jobs)
    work.until_settled()
    assert worker.terminate(GRACE_S + SLACK_S) == 0


def test_autoscaling_is_refused(work: Work) -> None:
    worker = start(work, "--autoscale=4,1", ready=False)
    assert worker.wait(30) == 1
    assert "--autoscale would end processes that run jobs" in worker.log
