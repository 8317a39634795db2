"""What the API shows of rows and counts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from api.broker_view import QueueCounts, Rates
from api.job_view import accepted_view, job_view
from api.openapi.queues import WorkQueue as ShownQueue
from api.queue_view import queue_view
from storage.attempts import AttemptRow
from storage.jobs import Job
from storage.work_queues import OutboxCount, Recent, StoredQueue
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


def shown(
    topology: Topology,
    broker: dict[str, QueueCounts] | None,
    stored: dict[str, StoredQueue] | None = None,
    paused: Collection[str] = (),
) -> dict[str, dict[str, Any]]:
    known = stored or {}
    return {
        queue.name: queue_view(queue, broker, known.get(queue.name, StoredQueue()), paused)
        for queue in topology.queues
    }


def test_queues_join_broker_outbox_and_jobs() -> None:
    rates = Rates(published=4.0, delivered=3.0, acknowledged=2.0, redelivered=0.0)
    broker = {
        "payments": QueueCounts(messages=7, ready=4, unacknowledged=3, stuck=1, consumers=2, rates=rates),
        "payments.retry.500ms": QueueCounts(messages=5, stuck=2),
        "payments.dlq": QueueCounts(messages=6),
    }
    stored = {
        "payments": StoredQueue(
            {"QUEUED": 4}, 1.25, OutboxCount(9, 0, 1, 2.5, "no queue takes it"),
            Recent(300.0, {"QUEUED": 4, "SUCCEEDED": 6}), 2,
        ),
        "emails": StoredQueue({"DEAD": 1}),
    }  # fmt: skip
    found = shown(TOPOLOGY, broker, stored, ("payments",))
    payments, emails = found["payments"], found["emails"]
    held = ("depth", "ready", "unacknowledged", "consumers", "retrying", "dlq_depth", "stuck", "undecided")
    assert [payments[name] for name in held] == [7, 4, 3, 2, 5, 6, 3, 2]
    assert payments["rates"] == {"published": 4.0, "delivered": 3.0, "acknowledged": 2.0, "redelivered": 0.0}
    assert payments["steps"][:3] == [
        {"name": "payments.retry.250ms", "delay_ms": 250, "messages": 0, "stuck": 0},
        {"name": "payments.retry.500ms", "delay_ms": 500, "messages": 5, "stuck": 2},
        {"name": "payments.retry.1s", "delay_ms": 1_000, "messages": 0, "stuck": 0},
    ]
    assert (payments["paused"], payments["paused_by"]) == (True, "watermark")
    assert (payments["outbox"]["messages"], payments["jobs"], payments["oldest_seconds"]) == (
        9,
        {"QUEUED": 4},
        1.25,
    )
    assert payments["recent"] == {"seconds": 300.0, "accepted": 10, "states": {"QUEUED": 4, "SUCCEEDED": 6}}
    assert (emails["depth"], emails["paused"], emails["jobs"]) == (0, False, {"DEAD": 1})
    assert (emails["oldest_seconds"], emails["paused_by"], emails["undecided"]) == (None, None, None)


def test_what_waits_on_a_shared_ladder_is_told_of_each_queue_with_the_ladders_name() -> None:
    ladder = Ladder(steps=2, shared="slow")
    topology = Topology((WorkQueue("a", ladder), WorkQueue("b", ladder), WorkQueue("c")))
    broker = {
        "slow.retry.250ms": QueueCounts(messages=2),
        "slow.retry.500ms": QueueCounts(messages=3, stuck=1),
    }
    found = shown(topology, broker).values()
    assert [(queue["name"], queue["ladder"], queue["retrying"], queue["stuck"]) for queue in found] == [
        ("a", "slow", 5, 1), ("b", "slow", 5, 1), ("c", None, 0, 0)
    ]  # fmt: skip


def test_a_queue_that_is_not_whole_on_the_broker_and_one_that_is_migrated_say_so() -> None:
    topology = Topology((WorkQueue("a", Ladder(steps=1)),))
    there = dict.fromkeys(["a", "a.dlq", "a.retry.250ms"], QueueCounts())
    assert shown(topology, there)["a"]["declared"] is True
    for missing in there:
        less = {name: counts for name, counts in there.items() if name != missing}
        assert shown(topology, less)["a"]["declared"] is False
    migrated = shown(topology, there | {"a.gate": QueueCounts()}, paused=("a",))["a"]
    assert (migrated["paused"], migrated["paused_by"]) == (True, "migration")


def test_queues_without_the_broker_say_null_not_zero() -> None:
    found = shown(TOPOLOGY, None, {"payments": StoredQueue({"QUEUED": 1}, 2.0)})
    names = ("declared", "depth", "steps", "retrying", "dlq_depth", "rates", "stuck", "consumers")
    assert {queue[name] for queue in found.values() for name in names} == {None}
    assert (found["payments"]["jobs"], found["payments"]["oldest_seconds"]) == ({"QUEUED": 1}, 2.0)
    with_broker = shown(TOPOLOGY, {})["payments"]
    assert with_broker.keys() == found["payments"].keys() == ShownQueue.model_fields.keys()
