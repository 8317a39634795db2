"""What the API shows of rows and counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from api.broker_view import QueueCounts
from api.job_view import accepted_view, job_view
from api.routes.queues import queues_view
from storage.attempts import AttemptRow
from storage.jobs import Job
from storage.overview import JobCount, OutboxCount
from topology.catalogue import TOPOLOGY
from topology.spec import Ladder, Topology, WorkQueue

T0 = datetime(2025, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


JOB = Job(
    id="j",
    type="payments.charge_order",
    queue="payments",
    state="SUCCEEDED",
    generation=1,
    attempt=2,
    origin="api",
    principal="shop",
    payload=b"{}",
    progress=None,
    result=b'{"ok":true}',
    reason=None,
    error=None,
    letter_id=None,
    created_at=at(0),
    queued_at=at(1),
    started_at=at(2),
    finished_at=at(9),
)
FIRST = AttemptRow(1, 1, "w1", "retry", "exception", "Busy", "503", "Trace", 4000, at(2), at(3))
SECOND = AttemptRow(1, 2, "w2", "succeeded", None, None, None, None, None, at(7), at(9))


def test_history_tells_every_state_in_order() -> None:
    states = [(step["at"][17:19], step["state"]) for step in job_view(JOB, [FIRST, SECOND])["history"]]
    assert states == [
        ("00", "PENDING"),
        ("01", "QUEUED"),
        ("02", "RUNNING"),
        ("03", "RETRYING"),
        ("07", "RUNNING"),
        ("09", "SUCCEEDED"),
    ]


def test_a_death_that_no_attempt_saw_comes_from_the_row() -> None:
    dead = replace(JOB, state="DEAD", reason="delivery_limit", started_at=None)
    last = job_view(dead, [])["history"][-1]
    assert (last["state"], last["reason"]) == ("DEAD", "delivery_limit")


def test_a_job_shows_result_attempts_and_its_named_fields() -> None:
    shown = job_view(JOB, [FIRST, SECOND])
    assert shown["result"] == {"ok": True}
    assert [(a["outcome"], a["delay_ms"], a["traceback"]) for a in shown["attempts"]] == [
        ("retry", 4000, "Trace"),
        ("succeeded", None, None),
    ]
    named = {
        "id",
        "type",
        "queue",
        "state",
        "attempt",
        "created_at",
        "started_at",
        "finished_at",
        "result",
        "error",
    }
    assert named | {"attempts", "history"} <= shown.keys()


def test_the_answer_to_a_submission_does_not_change_as_the_job_moves_on() -> None:
    new = replace(
        JOB, state="PENDING", attempt=1, queued_at=None, started_at=None, finished_at=None, result=None
    )
    assert accepted_view(JOB) == accepted_view(new)
    assert accepted_view(new)["state"] == "PENDING"


def test_queues_join_broker_outbox_and_jobs() -> None:
    broker = {
        "payments": QueueCounts(messages=7, ready=4, unacknowledged=3, stuck=1, consumers=2),
        "payments.retry.500ms": QueueCounts(messages=5, stuck=2),
        "payments.dlq": QueueCounts(messages=6),
    }
    outbox = [OutboxCount("payments", 9, 0, 1, 2.5, "no queue takes it")]
    jobs = [JobCount("payments", "QUEUED", 4), JobCount("emails", "DEAD", 1)]
    shown = {queue["name"]: queue for queue in queues_view(TOPOLOGY, broker, jobs, outbox, ("payments",))}
    payments, emails = shown["payments"], shown["emails"]
    assert (payments["depth"], payments["ready"], payments["unacknowledged"], payments["consumers"]) == (
        7,
        4,
        3,
        2,
    )
    assert (payments["retrying"], payments["dlq_depth"], payments["stuck"]) == (5, 6, 3)
    assert (payments["paused"], payments["outbox"]["messages"], payments["jobs"]) == (True, 9, {"QUEUED": 4})
    assert (emails["depth"], emails["paused"], emails["jobs"]) == (0, False, {"DEAD": 1})


def test_what_waits_on_a_shared_ladder_is_told_of_each_queue_with_the_ladders_name() -> None:
    ladder = Ladder(steps=2, shared="slow")
    topology = Topology((WorkQueue("a", ladder), WorkQueue("b", ladder), WorkQueue("c")))
    broker = {
        "slow.retry.250ms": QueueCounts(messages=2),
        "slow.retry.500ms": QueueCounts(messages=3, stuck=1),
    }
    shown = queues_view(topology, broker, [], [], ())
    assert [(queue["name"], queue["ladder"], queue["retrying"], queue["stuck"]) for queue in shown] == [
        ("a", "slow", 5, 1), ("b", "slow", 5, 1), ("c", None, 0, 0)
    ]  # fmt: skip


def test_queues_without_the_broker_say_null_not_zero() -> None:
    shown = queues_view(TOPOLOGY, None, [], [], ())
    assert {queue["depth"] for queue in shown} == {None}
