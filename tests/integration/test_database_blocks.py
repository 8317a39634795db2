"""A task's own trouble in its database blocks is no outage, as which it would come again for ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.shared import Places, Shared
from tests.support.work import Work, shared_work


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Work]]:
    with shared_work(places, module="tests.support.database_jobs", REDRIVE_DATABASE_TIMEOUT_S="3") as shared:
        yield shared


@pytest.fixture
def work(shared: Shared[Work], request: pytest.FixtureRequest) -> Iterator[Work]:
    with shared.lent(request.node) as work:
        yield work


CASES = {
    "timed_out": "QueryCanceledError",
    "timed_out_async": "QueryCanceledError",
    "other_server": "ConnectionRefusedError",
    "other_server_async": "TimeoutError",
    "greedy": "PoolExhaustedError",
    "greedy_async": "PoolExhaustedError",
}


def test_a_tasks_own_trouble_is_a_failure(work: Work) -> None:
    jobs = {name: work.submit(f"d.{name}") for name in CASES}
    for name, job in jobs.items():
        dead = work.until(job, "DEAD")
        (attempt,) = work.attempts(job)
        assert dead["reason"] == "exception"
        assert attempt["exception_type"].rpartition(".")[2] == CASES[name]
    work.until_letters(len(jobs))
