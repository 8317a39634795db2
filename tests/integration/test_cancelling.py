"""Jobs that are cancelled while they run, by a worker with two processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from storage import job_actions
from storage.job_actions import Who
from storage.pool import connect
from storage.settings import StorageSettings
from tests.support import background
from tests.support.processes import Process
from tests.support.shared import Places, Shared
from tests.support.waiting import eventually
from tests.support.work import Work, shared_work


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Work]]:
    with shared_work(places, app="tests.support.cancel_jobs") as shared:
        yield shared


@pytest.fixture
def work(shared: Shared[Work], request: pytest.FixtureRequest) -> Iterator[Work]:
    with shared.lent(request.node) as work:
        yield work


def cancel(work: Work, job_id: str) -> bool:
    async def asked() -> bool:
        settings = StorageSettings.model_validate({"database_url": work.database.url})
        connection = await connect(settings, "test")
        try:
            return await job_actions.cancel(connection, job_id, Who("me", "why", None))
        finally:
            await connection.close()

    return background.run(asked())


def cancelled_while_it_runs(work: Work, task: str, **arguments: Any) -> str:
    job = work.submit(task, **arguments)
    work.until(job, "RUNNING")
    assert cancel(work, job) is False
    return job


@pytest.mark.parametrize(
    ("task", "arguments", "outcome"),
    [
        ("c.plain", {"then": "stop"}, "returned"),
        ("c.async", {}, "returned"),
        ("c.plain", {"then": "fail"}, "retry"),
        ("c.plain", {"then": "vanish"}, "lost"),
    ],
)
def test_a_job_that_is_asked_to_stop_does_not_run_again(
    work: Work, worker: Process, task: str, arguments: dict[str, str], outcome: str
) -> None:
    job = cancelled_while_it_runs(work, task, **arguments)
    row = work.until(job, "CANCELLED")
    assert (row["attempt"], row["reason"], row["claim"], row["lease_until"]) == (1, "cancelled", None, None)
    (attempt,) = work.attempts(job)
    assert (attempt["outcome"], attempt["ended_at"]) == (outcome, row["finished_at"])
    work.until_settled()  # its message is acked, and none waits on the ladder
    assert work.letters() == []
    assert len(work.attempts(job)) == 1


def test_a_job_that_goes_on_to_its_end_has_that_end(work: Work, worker: Process) -> None:
    job = cancelled_while_it_runs(work, "c.plain", then="finish")
    assert work.result(job) == "done all the same"
    job = cancelled_while_it_runs(work, "c.dies")
    assert work.until(job, "DEAD")["reason"] == "exception"
    work.until_letters(1)


def test_a_message_of_a_job_that_was_cancelled_while_it_waited_is_a_duplicate(
    work: Work, worker: Process
) -> None:
    job = "11111111-1111-1111-1111-111111111111"
    work.database.execute(
        "insert into redrive.jobs (id, type, queue, state) values ($1, 'c.plain', 'work', 'QUEUED')", job
    )
    assert cancel(work, job) is True
    assert cancel(work, job) is True
    work.send("c.plain", job, then="stop")
    work.until_settled()
    eventually(lambda: "duplicate" in worker.log, 20, "the worker tells a duplicate")
    assert (work.job(job)["state"], work.attempts(job), work.letters()) == ("CANCELLED", [], [])
