"""Is it alive, can it take jobs, and what do the counters say."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from api.auth import Context, Reader
from api.json_text import JsonResponse
from api.problems import RETRY_AFTER_S
from topology.prometheus.text import CONTENT_TYPE

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?")
async def alive() -> Response:
    """Nothing else is asked: a database or broker that is away is no reason to restart this process."""
    return JsonResponse({"status": "alive"})


@router.get("/readyz", summary="Can jobs be accepted?")
async def ready(runtime: Context) -> Response:
    """503 without database or schema, or while the outbox is full.

    With trouble of the broker or the topology 200, and its name in `degraded`: jobs are accepted, and wait.
    """
    database = await runtime.database_look.state()
    room, troubles = runtime.room, runtime.troubles
    is_ready = database == "ok" and not room.full
    content: dict[str, Any] = {
        "status": "not ready" if not is_ready else "degraded" if troubles else "ready",
        "database": database,
        "outbox": {"messages": room.messages, "limit": room.limit, "full": room.full},
        "broker": runtime.relay.broker,
        "paused_queues": runtime.relay.paused,
        "stuck_letters": runtime.watch.stuck,
        "degraded": [trouble.as_json() for trouble in troubles],
    }
    if is_ready:
        return JsonResponse(content)
    return JsonResponse(content, 503, {"Retry-After": str(RETRY_AFTER_S)})


def metrics_router(*, public: bool) -> APIRouter:
    """`/metrics`, with or without a key."""
    made = APIRouter(tags=["health"], dependencies=[] if public else [Reader])

    @made.get("/metrics", summary="Figures for Prometheus", response_class=PlainTextResponse)
    async def metrics(runtime: Context) -> Response:
        """Always 200, within a second: `redrive_up` says which server was not reached."""
        return Response(await runtime.figures.page(), media_type=CONTENT_TYPE)

    return made
