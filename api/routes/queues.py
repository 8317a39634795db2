"""The work queues: what the broker holds, what the outbox holds, and how far the jobs are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from api.auth import Requires, runtime_of
from api.broker_view import BrokerViewError, QueueCounts
from api.json_text import JsonResponse
from api.runtime import Runtime
from storage import overview
from storage.overview import JobCount, OutboxCount
from topology import names
from topology.spec import Topology, WorkQueue

router = APIRouter(tags=["queues"])


@router.get("/queues", dependencies=[Depends(Requires("read"))], summary="Work queues and what is in them")
async def queues(runtime: Annotated[Runtime, Depends(runtime_of)]) -> Response:
    """Counts of the broker come from its management API and are up to 5 s old; without it they are null."""
    async with runtime.database() as db:
        jobs, outbox = await overview.job_counts(db), await overview.outbox_counts(db)
    try:
        broker: Mapping[str, QueueCounts] | None = await runtime.broker.queues()
        said = "ok"
    except BrokerViewError as error:
        broker, said = None, str(error)
    shown = queues_view(runtime.config.topology, broker, jobs, outbox, runtime.relay.paused)
    unrouted = None if broker is None else broker.get(names.UNROUTED_DLQ, QueueCounts()).messages
    return JsonResponse({"broker": said, "queues": shown, "unrouted": unrouted})


def queues_view(
    topology: Topology,
    broker: Mapping[str, QueueCounts] | None,
    jobs: Sequence[JobCount],
    outbox: Sequence[OutboxCount],
    paused: Sequence[str],
) -> list[dict[str, Any]]:
    """One entry for each work queue. `depth`: ready and delivered; `retrying`: in its retry ladder.

    `ladder` names the ladder that it shares, or is null: what waits there is told of each that shares it.
    """
    states: dict[str, dict[str, int]] = defaultdict(dict)
    for count in jobs:
        states[count.queue][count.state] = count.jobs
    waiting = {count.queue: count for count in outbox}
    return [
        {
            "name": queue.name,
            "description": queue.description,
            "ladder": queue.ladder.shared,
            **_broker_counts(queue, broker),
            "watermark": queue.watermark,
            "paused": queue.name in paused,
            "outbox": _outbox(waiting.get(queue.name)),
            "jobs": states[queue.name],
        }
        for queue in topology.queues
    ]


def _broker_counts(queue: WorkQueue, broker: Mapping[str, QueueCounts] | None) -> dict[str, int | None]:
    if broker is None:
        return dict.fromkeys(
            ("depth", "ready", "unacknowledged", "consumers", "retrying", "dlq_depth", "stuck")
        )
    none = QueueCounts()
    work = broker.get(queue.name, none)
    steps = [
        broker.get(names.step(queue.name, queue.ladder, number), none) for number in range(queue.ladder.steps)
    ]
    return {
        "depth": work.messages,
        "ready": work.ready,
        "unacknowledged": work.unacknowledged,
        "consumers": work.consumers,
        "retrying": sum(step.messages for step in steps),
        "dlq_depth": broker.get(names.dlq(queue.name), none).messages,
        # Letters and retries that the broker could not hand on: a queue or binding is missing, or full.
        "stuck": work.stuck + sum(step.stuck for step in steps),
    }


def _outbox(count: OutboxCount | None) -> dict[str, Any]:
    if count is None:
        return {"messages": 0, "delayed": 0, "refused": 0, "oldest_seconds": 0.0, "last_error": None}
    return {
        "messages": count.messages,
        "delayed": count.delayed,
        "refused": count.refused,
        "oldest_seconds": round(count.oldest_s, 3),
        "last_error": count.last_error,
    }
