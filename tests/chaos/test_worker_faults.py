"""Workers killed, connections cut: nothing is lost, and each effect happens once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.processes import Process, Processes
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually, let_pass
from tests.support.work import TIME_SCALE, Work, runs
from topology.address import AmqpAddress
from topology.declare import apply, connection
from topology.entities import compile_topology
from topology.headers import DUE
from topology.messages import task_message
from topology.names import step
from topology.wire import RawProperties, split


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


def test_a_killed_workers_job_is_finished_by_another_with_one_effect(work: Work, tmp_path: Path) -> None:
    path, gate = tmp_path / "runs", tmp_path / "gate"
    first = work.start()
    job = work.submit("t.mark", key="k", path=str(path), gate=str(gate))
    eventually(lambda: work.job(job)["lease_cap"], 20, "the job runs, and that is on record")
    first.kill()
    gate.touch()
    work.start()
    assert work.result(job) == "done"
    assert [attempt["outcome"] for attempt in work.attempts(job)] == ["lost", "succeeded"]
    assert work.attempts(job)[0]["reason"] == "worker_lost"
    assert work.effects() == 1
    work.until_settled()


def test_a_worker_that_is_told_to_stop_finishes_what_runs_and_gives_back_the_rest(
    work: Work, tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    first = work.start()
    jobs = [work.submit("t.mark", key=f"k{n}", seconds=0.5, path=str(path)) for n in range(12)]
    eventually(lambda: len(runs(path)) >= 2, 20, "two jobs run")
    assert first.terminate(40) == 0
    work.start()
    for job in jobs:
        assert work.result(job) == "done"
    assert set(runs(path).values()) == {1}, "none ran twice"
    assert all(work.job(job)["crashes"] == 0 for job in jobs)
    assert work.effects() == len(jobs)


def test_cut_database_connections_are_survived(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    worker = work.start()
    jobs = [work.submit("t.mark", key=f"k{n}", seconds=0.1, path=str(path)) for n in range(40)]
    for count in (5, 15, 25):
        eventually(lambda count=count: len(runs(path)) >= count, 30, f"{count} jobs ran")  # type: ignore[misc]
        work.database.cut_connections()
    for job in jobs:
        work.until(job, "SUCCEEDED", 40)
    assert work.effects() == len(jobs)
    assert work.letters() == []
    assert worker.exit_code is None


def test_a_connection_that_is_lost_as_a_process_ends_is_made_again(work: Work) -> None:
    worker = work.start(concurrency=1)
    work.until(work.submit("t.unwatched"), "SUCCEEDED")

    def connected_again() -> bool:
        for opened in work.vhost.management.get(f"/api/vhosts/{work.vhost.vhost}/connections").json():
            work.vhost.management.delete(f"/api/connections/{opened['name']}")
        return worker.log.count("Connected to amqp") > 1

    eventually(connected_again, 30, "its connection is made again", every_s=0.5)
    assert work.result(work.submit("t.add", x=1, y=2)) == 3
    assert "action=loop_failed" not in worker.log


def test_a_cut_broker_connection_is_survived_and_nothing_runs_twice(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    worker = work.start()
    jobs = [work.submit("t.mark", key=f"k{n}", seconds=0.3, path=str(path)) for n in range(20)]
    eventually(lambda: len(runs(path)) >= 4, 20, "jobs run")
    for opened in work.vhost.management.get(f"/api/vhosts/{work.vhost.vhost}/connections").json():
        work.vhost.management.delete(f"/api/connections/{opened['name']}")
    for job in jobs:
        assert work.result(job) == "done"
    assert set(runs(path).values()) == {1}
    work.until_settled(60)
    assert work.letters() == []
    assert worker.exit_code is None


def test_a_cold_shutdown_gives_back_what_it_kills(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    first = work.start()
    job = work.submit("t.mark", key="k", seconds=4.0, path=str(path))
    eventually(lambda: runs(path)[job] == 1, 20, "the job runs")
    first.send(signal.SIGQUIT)
    first.wait(30)
    work.start()
    work.until(job, "SUCCEEDED")
    assert work.job(job)["crashes"] == 0
    assert work.effects() == 1


def test_what_waited_in_a_killed_workers_hands_is_not_counted_as_a_crash(work: Work, tmp_path: Path) -> None:
    path, gate = tmp_path / "runs", tmp_path / "gate"
    first = work.start(concurrency=1)
    work.result(work.submit("t.add", x=1, y=1))  # from now on with the full window
    jobs = [work.submit("t.mark", key=f"k{n}", path=str(path), gate=str(gate)) for n in range(4)]
    eventually(lambda: all(work.job(job)["state"] == "RUNNING" for job in jobs), 10, "all are claimed")
    eventually(lambda: runs(path), 10, "one runs")
    running = [job for job in jobs if runs(path)[job]]
    eventually(lambda: work.job(running[0])["lease_cap"], 5, "its start is on record")
    first.kill()
    gate.touch()
    work.start(concurrency=4)
    for job in jobs:
        assert work.result(job) == "done"
    assert {job: work.job(job)["crashes"] for job in jobs} == {job: int(job in running) for job in jobs}
    assert len(running) == 1
    assert work.effects() == len(jobs)


def lost_or_dead(work: Work, worker: Process, job: str) -> bool:
    return worker.exit_code is not None or bool(work.job(job)["state"] == "DEAD")


def test_a_job_that_kills_the_worker_itself_is_dead_at_the_bound_and_no_other(work: Work) -> None:
    good = [work.submit("t.mark", key=f"k{n}") for n in range(6)]
    bad = work.submit("t.kill_worker")
    good += [work.submit("t.mark", key=f"l{n}") for n in range(6)]
    for _ in range(6):
        worker = work.start(ready=False)
        eventually(
            partial(lost_or_dead, work, worker, bad),
            40,
            "the worker is killed, or the job is dead",
        )
        if work.job(bad)["state"] == "DEAD":
            break
    for job in good:
        work.until(job, "SUCCEEDED")
    assert work.job(bad)["reason"] == "worker_lost"
    assert work.effects() == len(good)
    work.until_letters(1)


def test_jobs_that_run_beside_one_that_kills_the_worker_are_not_dead_with_it(work: Work) -> None:
    begun = "select count(*) from redrive.jobs where state = 'RUNNING' and lease_cap is not null"
    good, bad, losses = [], "", 0
    while not bad or work.job(bad)["state"] != "DEAD":
        assert losses < 8, "it kills one worker after the other"
        worker = work.start(concurrency=4, ready=False)
        # Settled first, so that this worker then takes as many as it can run.
        quick = work.submit("t.add", x=1, y=1)
        if not bad:
            work.until(quick, "SUCCEEDED")
            good = [work.submit("t.mark", key=f"g{n}", seconds=5) for n in range(3)]
            bad = work.submit("t.kill_worker_later")
            eventually(lambda: work.database.value(begun) == 4, 20, "all four run together")
        eventually(
            partial(lost_or_dead, work, worker, bad),
            60,
            "the worker is killed, or the job is dead",
        )
        losses += 1
    for job in good:
        work.until(job, "SUCCEEDED", 60)
    assert work.job(bad)["reason"] == "worker_lost"
    ((_, body),) = work.until_letters(1)
    assert body == b'[[],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
    assert max(work.job(job)["crashes"] for job in good) >= 1, "they were in it"


def test_postgres_away_for_a_while_burns_no_attempt(
    work: Work, proxy: Callable[..., TcpProxy], tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    through = proxy(work.database.url)
    worker = work.start(REDRIVE_DATABASE_URL=through.url, REDRIVE_WORKER_PATIENCE_S="1")
    jobs = [work.submit("t.mark", key=f"k{n}", seconds=0.2, path=str(path)) for n in range(10)]
    eventually(lambda: len(runs(path)) >= 2, 20, "jobs run")
    through.refuse()
    worker.wait_for_log("consuming nothing")
    jobs += [work.submit("t.mark", key=f"l{n}", path=str(path)) for n in range(10)]
    let_pass(4)
    through.resume()
    worker.wait_for_log("the database is back")
    for job in jobs:
        work.until(job, "SUCCEEDED", 40)
        assert work.job(job)["crashes"] == 0
    assert work.effects() == len(jobs)
    assert work.letters() == []
    assert worker.log.count("waiting for the database") <= 5


def test_retries_survive_a_broker_that_is_away(work: Work, proxy: Callable[..., TcpProxy]) -> None:
    through = proxy(work.vhost.amqp_url)
    worker = work.start(REDRIVE_AMQP_URL=through.url)
    jobs = [work.submit("t.flaky_slow", fail=2) for _ in range(4)]
    eventually(lambda: all(work.job(job)["state"] == "RUNNING" for job in jobs), 10, "they run")
    through.refuse()
    eventually(lambda: worker.log.count("Trying again in") >= 1, 30, "the broker is away")
    through.resume()
    for job in jobs:
        work.until(job, "SUCCEEDED", 60)
        assert [attempt["outcome"] for attempt in work.attempts(job)] == ["retry", "retry", "succeeded"]
    assert work.letters() == []


def test_a_lease_is_renewed_while_its_job_runs(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    first = work.start(REDRIVE_WORKER_LEASE_S="3", REDRIVE_WORKER_RENEW_S="0.5")
    work.result(work.submit("t.add", x=1, y=1))  # from now on with the full window
    job = work.submit("t.mark", key="k", seconds=5.0, path=str(path))
    eventually(lambda: runs(path)[job] == 1, 20, "the job runs")
    work.send("t.mark", job, key="k", seconds=5.0, path=str(path))
    assert work.result(job) == "done"
    first.wait_for_log("duplicate acked", 20)
    assert runs(path)[job] == 1
    assert work.job(job)["crashes"] == 0


def test_a_retry_that_cannot_be_published_is_not_acked_and_the_job_goes_on(work: Work) -> None:
    from tests.support.worker_jobs import QUEUE, TOPOLOGY

    top = step("work", QUEUE.ladder, QUEUE.ladder.steps - 1)
    address = AmqpAddress.parse(work.vhost.amqp_url)
    first = work.start()
    with connection(address, "test") as opened:
        opened.channel().exchange_delete(top)
    job = work.submit("t.retry_after", seconds=75.0)  # 15 s
    work.until(job, "RETRYING")
    first.wait_for_log("action=ladder_publish_failed")
    eventually(lambda: (work.vhost.queue("work") or {}).get("messages_unacknowledged") == 1, 20, "unacked")
    first.kill_group()
    apply(address, compile_topology(TOPOLOGY, TIME_SCALE))
    work.start()
    assert work.result(job) == "came back with -1"
    assert [attempt["outcome"] for attempt in work.attempts(job)] == ["retry", "succeeded"]
    assert work.letters() == []


def test_nothing_is_consumed_while_postgres_is_away(work: Work, proxy: Callable[..., TcpProxy]) -> None:
    through = proxy(work.database.url)
    worker = work.start(REDRIVE_DATABASE_URL=through.url)

    def consumers(count: int) -> bool:
        return bool((work.vhost.queue("work") or {}).get("consumers") == count)

    eventually(lambda: consumers(1), 20, "it consumes")
    through.refuse()
    job = work.submit("t.add", x=1, y=1)  # an idle worker asks nothing of the database
    worker.wait_for_log("consuming nothing")
    eventually(lambda: consumers(0), 20, "it consumes nothing")
    through.resume()
    eventually(lambda: consumers(1), 20, "it consumes again")
    assert work.result(job) == 2


def test_a_message_that_is_not_due_waits_in_the_broker(work: Work) -> None:
    work.start()
    due = time.time() + 3
    message = task_message("due", "t.add", {"x": 1, "y": 1})
    properties = split(message.properties).with_header(DUE, int(due * 1000))
    work.publish(message.body, RawProperties(properties.encode()))
    assert work.result("due") == 2
    assert due <= work.attempts("due")[0]["started_at"].timestamp()
