"""Without a catalogue of jobs, the workers tell the dead-letter consumer which tasks there are."""

from __future__ import annotations

from tests.support.ends import Ends
from tests.support.shared import Places
from tests.support.waiting import eventually

APP = "tests.support.uncatalogued_jobs"
REASON = "select reason from redrive.dead_letters where job_id = $1"


def reason_of(ends: Ends, job_id: str) -> str:
    (letter,) = eventually(lambda: ends.database.fetch(REASON, job_id), 30, "its letter is stored")
    return str(letter["reason"])


def test_a_task_that_no_worker_has_is_named_so_and_another_one_is_not(places: Places) -> None:
    with places.fresh() as (vhost, database, processes):
        ends = Ends(vhost, database, processes, module=APP)
        ends.start_consumer()
        with vhost.channel() as channel:  # rejected by a stranger, as no worker has said anything yet
            ends.send("u.gone", "stranger")
            eventually(lambda: reject_one(channel), 20, "it has come")
        assert reason_of(ends, "stranger") == "rejected"

        ends.start()
        said = (
            "select count(*) from redrive.worker_tasks where 'u.fine' = any(tasks) and 'work' = any(queues)"
        )
        eventually(lambda: database.value(said) == 1, 20, "the worker has said what it has registered")
        ends.send("u.gone", "gone")
        assert reason_of(ends, "gone") == "unknown_task"
        assert ends.result(ends.submit("u.fine")) == "fine"


def reject_one(channel: object) -> bool:
    method, _, _ = channel.basic_get("work")  # type: ignore[attr-defined]
    if method is not None:
        channel.basic_reject(method.delivery_tag, requeue=False)  # type: ignore[attr-defined]
    return method is not None
