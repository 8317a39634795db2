"""The work queues: what the broker holds, what the outbox holds, and how far the jobs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.auth import Context, Reader
from api.broker_view import BrokerViewError, QueueCounts
from api.json_text import JsonResponse
from api.problems import Problem
from api.queue_view import Broker, queue_view
from api.runtime import Runtime
from storage import work_queues
from topology import names
from topology.errors import UnknownQueueError
from topology.spec import WorkQueue

router = APIRouter(tags=["queues"], dependencies=[Reader])


@router.get("/queues", summary="Work queues and what is in them")
async def queues(runtime: Context) -> Response:
    """What the broker holds comes from its management API and is up to 5 s old.

    Without it `broker` says why, and what it would say is null; what Postgres knows is told all the same.
    `unrouted`: messages in the catch-all for what no binding takes.
    """
    said, broker, shown = await _look(runtime, runtime.config.topology.queues)
    unrouted = None if broker is None else broker.get(names.UNROUTED_DLQ, QueueCounts()).messages
    return JsonResponse({"broker": said, "queues": shown, "unrouted": unrouted})


@router.get("/queues/{name}", summary="One work queue")
async def queue(name: str, runtime: Context) -> Response:
    """The same of one."""
    try:
        wanted = runtime.config.topology.queue(name)
    except UnknownQueueError as error:
        known = ", ".join(each.name for each in runtime.config.topology.queues)
        raise Problem(404, "unknown-queue", f"no work queue {name[:300]!r}; there are: {known}") from error
    said, _, (shown,) = await _look(runtime, [wanted])
    return JsonResponse({"broker": said, "queue": shown})


async def _look(
    runtime: Runtime, wanted: Sequence[WorkQueue]
) -> tuple[str, Broker | None, list[dict[str, Any]]]:
    """What the broker says of itself, what it holds, and what is shown of each queue."""
    async with runtime.database() as db:
        stored = await work_queues.look(db, [each.name for each in wanted])
    try:
        broker: Broker | None = await runtime.broker.queues()
        said = "ok"
    except BrokerViewError as error:
        broker, said = None, str(error)
    paused = runtime.relay.paused
    return said, broker, [queue_view(each, broker, stored[each.name], paused) for each in wanted]
