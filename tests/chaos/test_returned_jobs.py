"""Messages that were delivered before, at a worker that has just connected: long jobs, and suspects."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import QUEUE, Work, runs


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


def deliver_once(work: Work, count: int) -> None:
    """To a program that goes away with them."""
    with work.vhost.channel() as channel:
        for _ in range(count):
            eventually(lambda: channel.basic_get(QUEUE)[0] is not None, 20, "a delivery")


def test_long_jobs_run_side_by_side(work: Work, tmp_path: Path) -> None:
    path = tmp_path / "runs"
    jobs = [work.submit("t.mark", key=f"k{n}", seconds=60.0, path=str(path)) for n in range(3)]
    deliver_once(work, len(jobs))
    work.start("-P", "threads", concurrency=3)
    eventually(lambda: len(runs(path)) == 3, 40, "all run")
    assert [work.job(job)["state"] for job in jobs] == ["RUNNING"] * 3, "none has ended yet"


def test_a_job_whose_worker_was_lost_in_its_run_has_to_end_first(work: Work) -> None:
    suspect, other = [work.submit("t.mark", key=f"k{n}", seconds=5.0) for n in range(2)]
    work.database.execute(
        "update redrive.jobs set state = 'RUNNING', claim = gen_random_uuid(), lease_cap = now(),"
        " lease_until = now() - interval '1 s' where id = $1",
        suspect,
    )
    deliver_once(work, 2)
    work.start(concurrency=2)
    for job in (suspect, other):
        work.until(job, "SUCCEEDED")
    assert work.job(suspect)["crashes"] == 1
    begun = work.job(other)["started_at"]
    assert begun >= work.job(suspect)["finished_at"]
