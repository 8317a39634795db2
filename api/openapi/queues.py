"""Work queues: what is shown of them, an example of each answer, and the operations."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.openapi import story
from api.openapi.job_models import State
from api.openapi.operation import Operation, one
from api.openapi.schema import Count, Seconds, Shown


class QueueStep(Shown):
    """A queue of the retry ladder."""

    name: str
    delay_ms: Count = Field(description="nominal")
    messages: Count
    stuck: Count


class QueueRates(Shown):
    """Messages a second over the broker's last five seconds; null before the first message."""

    published: float | None
    delivered: float | None
    acknowledged: float | None
    redelivered: float | None


class QueueOutbox(Shown):
    """Accepted jobs that the broker has not confirmed."""

    messages: Count = Field(description="that are due")
    delayed: Count = Field(description="that are not due yet")
    refused: Count = Field(description="by the broker; they are tried again")
    oldest_seconds: Seconds = Field(description="since the first one was accepted, or due if it was delayed")
    last_error: str | None


class RecentJobs(Shown):
    """Jobs accepted in the last `seconds`, by the state that they are in now."""

    seconds: Seconds
    accepted: Count
    states: dict[State, Count]


class WorkQueue(Shown):
    """What the broker says of it is null while its management API does not answer."""

    name: str
    description: str
    ladder: str | None = Field(description="the ladder that it shares: what waits there is told of each")
    declared: bool | None = Field(description="the queue, its dead-letter queue and its steps are there")
    depth: Count | None = Field(description="ready and unacknowledged messages")
    ready: Count | None
    unacknowledged: Count | None
    consumers: Count | None
    retrying: Count | None = Field(description="messages in its ladder")
    steps: list[QueueStep] | None = Field(description="the shortest first")
    dlq_depth: Count | None = Field(description="dead letters that are not drained yet")
    stuck: Count | None = Field(description="letters and retries that the broker cannot hand on")
    rates: QueueRates | None
    oldest_seconds: Seconds | None = Field(
        description="how long the first job that no worker has begun has been in the queue"
    )
    undecided: Count | None = Field(description="stored letters that nobody has decided on")
    watermark: int = Field(ge=1, description="above this depth the relay publishes nothing to it")
    paused: bool = Field(description="this process's relay publishes nothing to it now")
    paused_by: Literal["watermark", "migration"] | None
    outbox: QueueOutbox
    jobs: dict[State, Count] = Field(description="those that have not ended, and dead ones")
    recent: RecentJobs


class WorkQueueList(Shown):
    broker: str = Field(description="`ok`, or why its management API says nothing")
    queues: list[WorkQueue]
    unrouted: Count | None = Field(description="messages in the catch-all for what no binding takes")


class OneWorkQueue(Shown):
    broker: str = Field(description="`ok`, or why its management API says nothing")
    queue: WorkQueue


_QUEUE: dict[str, Any] = {
    "name": story.QUEUE, "description": "Calls to the payment provider", "ladder": None, "declared": True,
    "depth": 7, "ready": 4, "unacknowledged": 3, "consumers": 2, "retrying": 5,
    "steps": [{"name": "payments.retry.250ms", "delay_ms": 250, "messages": 5, "stuck": 0}],
    "dlq_depth": 0, "stuck": 0,
    "rates": {"published": 9.6, "delivered": 9.4, "acknowledged": 9.4, "redelivered": 0.0},
    "oldest_seconds": 0.412, "undecided": 3, "watermark": 10_000, "paused": False, "paused_by": None,
    "outbox": {"messages": 0, "delayed": 1, "refused": 0, "oldest_seconds": 0.0, "last_error": None},
    "jobs": {"QUEUED": 4, "RUNNING": 3, "RETRYING": 5, "DEAD": 3},
    "recent": {"seconds": 300.0, "accepted": 2_811, "states": {"QUEUED": 4, "SUCCEEDED": 2_807}},
}  # fmt: skip
OPERATIONS = {
    "GET /queues": Operation(
        "list_queues",
        one(WorkQueueList, {"broker": "ok", "queues": [_QUEUE], "unrouted": 0}, "Each work queue."),
    ),
    "GET /queues/{name}": Operation(
        "get_queue",
        one(OneWorkQueue, {"broker": "ok", "queue": _QUEUE}, "The work queue."),
        ("unknown-queue",),
    ),
}
