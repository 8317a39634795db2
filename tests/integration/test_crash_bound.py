"""REDRIVE_WORKER_CRASH_BOUND: a job that takes its process or its worker down has so many attempts."""

from __future__ import annotations

import pytest

from tests.support.databases import Database
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import Work


@pytest.fixture
def work(vhost: Vhost, database: Database, processes: Processes) -> Work:
    return Work(vhost, database, processes)


def losses(work: Work, job: str) -> list[tuple[str, str]]:
    dead = work.until(job, "DEAD", 60)
    assert dead["reason"] == "worker_lost"
    work.until_letters(1)
    return [(attempt["outcome"], attempt["reason"]) for attempt in work.attempts(job)]


@pytest.mark.parametrize("bound", [1, 2])
def test_a_job_that_kills_its_process_has_as_many_attempts_as_the_setting_says(
    work: Work, bound: int
) -> None:
    work.start(REDRIVE_WORKER_CRASH_BOUND=str(bound))
    job = work.submit("t.kill")
    assert losses(work, job) == [("lost", "worker_lost")] * bound


def test_a_job_that_kills_its_worker_has_as_many_attempts_as_the_setting_says(work: Work) -> None:
    job = work.submit("t.kill_worker_later")
    worker = work.start(ready=False, REDRIVE_WORKER_CRASH_BOUND="1")
    eventually(lambda: worker.exit_code, 40, "the worker is gone")
    work.start(REDRIVE_WORKER_CRASH_BOUND="1")
    assert losses(work, job) == [("lost", "worker_lost")]
    assert work.result(work.submit("t.add", x=1, y=1)) == 2
