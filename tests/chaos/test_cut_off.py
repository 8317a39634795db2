"""A worker is cut off from the broker and not from Postgres: others do at once what it has not begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import Work, runs


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_it_has_not_begun_is_done_elsewhere_and_what_it_runs_ends_on_record(
    work: Work, proxy: Callable[..., TcpProxy], tmp_path: Path, pool: str
) -> None:
    path, gate = tmp_path / "runs", tmp_path / "gate"
    through = proxy(work.vhost.amqp_url)
    # Leases outlive the test: what is done elsewhere was given back.
    cut_off = work.start(
        "-P", pool, concurrency=1, REDRIVE_AMQP_URL=through.url, REDRIVE_WORKER_LEASE_S="300"
    )
    work.result(work.submit("t.add", x=1, y=1))  # from now on with the full window
    jobs = [work.submit("t.mark", key=f"k{n}", path=str(path), gate=str(gate)) for n in range(4)]
    eventually(lambda: [work.job(job)["state"] for job in jobs] == ["RUNNING"] * 4, 20, "all are claimed")
    eventually(lambda: runs(path), 20, "one runs")
    (running,) = [job for job in jobs if runs(path)[job]]
    eventually(lambda: work.job(running)["lease_cap"], 20, "its start is on record")
    through.refuse()
    cut_off.wait_for_log("Trying again in", 30)
    gate.touch()
    work.until(running, "SUCCEEDED")
    waiting = [job for job in jobs if job != running]
    assert {work.job(job)["state"] for job in waiting} == {"QUEUED"}

    work.start()
    for job in waiting:
        work.until(job, "SUCCEEDED", 60)
    assert cut_off.log.count("Connected to amqp") == 1, "it is cut off all the time"
    through.resume()
    eventually(lambda: cut_off.log.count("Connected to amqp") == 2, 60, "it has connected again")
    assert work.result(work.submit("t.add", x=1, y=2)) == 3
    assert {job: runs(path)[job] for job in jobs} == dict.fromkeys(jobs, 1)
    assert all(len(work.attempts(job)) == 1 and work.job(job)["crashes"] == 0 for job in jobs)
    assert work.effects() == len(jobs)
    assert work.letters() == []
    assert cut_off.exit_code is None


def test_a_retry_of_a_worker_that_is_cut_off_is_run_by_another(
    work: Work, proxy: Callable[..., TcpProxy]
) -> None:
    through = proxy(work.vhost.amqp_url)
    cut_off = work.start(concurrency=1, REDRIVE_AMQP_URL=through.url)
    job = work.submit("t.flaky_slow", fail=1)
    eventually(lambda: work.job(job)["lease_cap"], 20, "it runs")
    through.refuse()
    work.until(job, "RETRYING")
    work.start()
    work.until(job, "SUCCEEDED", 60)
    assert [attempt["outcome"] for attempt in work.attempts(job)] == ["retry", "succeeded"]
    assert cut_off.log.count("Connected to amqp") == 1
    assert work.letters() == []
