"""A task's own trouble in its database blocks is no outage, as which it would come again for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from tests.support.shared import Places, Shared
from tests.support.work import Work, shared_work
from tests.support.worker_jobs import MARK
from topology.wire import RawProperties, properties


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


@pytest.mark.anyio
async def test_a_transaction_that_is_in_the_way_is_tried_again_but_not_for_ever(work: Work) -> None:
    work.database.execute(MARK, "k", "nobody")
    connection = await asyncpg.connect(work.database.url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM redrive.sample_emails WHERE email_key = 'k' FOR UPDATE")
            doomed = await asyncio.to_thread(work.submit, "d.contended", key="k")
            dead = await asyncio.to_thread(work.until, doomed, "DEAD", 60)
            patient = await asyncio.to_thread(work.submit, "d.contended", key="k")
            await asyncio.to_thread(work.until, patient, "RETRYING")
        assert await asyncio.to_thread(work.result, patient) == 0, "Celery's retries are not used up"
    finally:
        await connection.close()
    assert (dead["reason"], dead["attempt"]) == ("exception", 20)
    assert "could not obtain lock on row" in dead["error"]
    await asyncio.to_thread(work.until_letters, 1)


def test_a_transaction_of_a_job_may_pause_for_as_long_as_the_job_may_run(work: Work) -> None:
    """By default 900 s; and what takes longer to be killed is not cut off either."""
    assert work.result(work.submit("d.patience")) == "16min"
    headers: dict[str, Any] = {"lang": "py", "task": "d.patience", "id": "longer", "timelimit": [1170, None]}
    raw = properties(headers=headers, content_type="application/json", content_encoding="utf-8")
    work.publish(b"[[], {}, {}]", RawProperties(raw.encode()))
    assert work.result("longer") == "20min"
    assert work.result(work.submit("d.patience")) == "16min"
