"""A work queue as it is shown: what the broker holds of it, and what the tables say. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from api.broker_view import QueueCounts
from storage.work_queues import OutboxCount, Recent, StoredQueue
from topology import names
from topology.spec import WorkQueue

Broker = Mapping[str, QueueCounts]


def queue_view(
    queue: WorkQueue, broker: Broker | None, stored: StoredQueue, paused: Collection[str]
) -> dict[str, Any]:
    """One work queue. What the broker would say is null where it does not (`broker` None).

    `depth`: ready and delivered; `retrying`: in its retry ladder. `ladder` names the ladder that it shares,
    or is null: what waits there is told of each that shares it.
    """
    return {
        "name": queue.name,
        "description": queue.description,
        "ladder": queue.ladder.shared,
        **_held(queue, broker),
        "oldest_seconds": None if stored.oldest_s is None else round(stored.oldest_s, 3),
        "undecided": stored.undecided,
        "watermark": queue.watermark,
        "paused": queue.name in paused,
        "paused_by": _paused_by(queue, broker) if queue.name in paused else None,
        "outbox": _outbox(stored.outbox),
        "jobs": dict(stored.jobs),
        "recent": _recent(stored.recent),
    }


def _held(queue: WorkQueue, broker: Broker | None) -> dict[str, Any]:
    if broker is None:
        return dict.fromkeys(
            ("declared", "depth", "ready", "unacknowledged", "consumers", "retrying", "steps", "dlq_depth",
             "stuck", "rates")
        )  # fmt: skip
    none = QueueCounts()
    work = broker.get(queue.name, none)
    steps = list(_steps(queue, broker))
    return {
        # What is missing holds 0 messages: /readyz names it.
        "declared": all(name in broker for name in _queues(queue)),
        "depth": work.messages,
        "ready": work.ready,
        "unacknowledged": work.unacknowledged,
        "consumers": work.consumers,
        "retrying": sum(step["messages"] for step in steps),
        "steps": steps,
        "dlq_depth": broker.get(names.dlq(queue.name), none).messages,
        # Letters and retries that the broker could not hand on: a queue or binding is missing, or full.
        "stuck": work.stuck + sum(step["stuck"] for step in steps),
        "rates": dict(vars(work.rates)),
    }


def _queues(queue: WorkQueue) -> Iterator[str]:
    yield from (queue.name, names.dlq(queue.name))
    yield from (names.step(queue.name, queue.ladder, number) for number in range(queue.ladder.steps))


def _steps(queue: WorkQueue, broker: Broker) -> Iterator[dict[str, Any]]:
    """The shortest first; `delay_ms` is nominal."""
    for number in range(queue.ladder.steps):
        name = names.step(queue.name, queue.ladder, number)
        held = broker.get(name, QueueCounts())
        delay_ms = queue.ladder.step_ms(number)
        yield {"name": name, "delay_ms": delay_ms, "messages": held.messages, "stuck": held.stuck}


def _paused_by(queue: WorkQueue, broker: Broker | None) -> str | None:
    if broker is None:
        return None
    return "migration" if names.gate(queue.name) in broker else "watermark"


def _outbox(count: OutboxCount) -> dict[str, Any]:
    return {
        "messages": count.messages,
        "delayed": count.delayed,
        "refused": count.refused,
        "oldest_seconds": round(count.oldest_s, 3),
        "last_error": count.last_error,
    }


def _recent(recent: Recent) -> dict[str, Any]:
    accepted = sum(recent.states.values())
    return {"seconds": round(recent.seconds, 3), "accepted": accepted, "states": dict(recent.states)}
