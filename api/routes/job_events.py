"""A job's state as server-sent events, until it has ended.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response, StreamingResponse

from api.auth import Context, Reader
from api.holding import hold, still_good
from api.job_reading import JobReading, read_job, reading, require_room, watch_of
from api.job_watch import MAX_WAITING, JobWatch
from api.ready_json import written
from api.runtime import Runtime
from api.slashes import JobId
from storage.errors import DatabaseAwayError

HEARTBEAT_S = 15.0
# Between two looks at its key.
CHECK_S = 2.0
AGAIN_S = 1.0
# Then the answer ends, and whoever comes back shows a key that is still good.
LONGEST_S = 900.0
RETRY_MS = 2_000

router = APIRouter(tags=["jobs"], dependencies=[Reader])


@router.get(
    "/jobs/{job_id}/events",
    summary="A job, live",
    response_class=StreamingResponse,
)
async def events(
    job_id: JobId,
    request: Request,
    runtime: Context,
    last_event_id: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """Server-sent events: `job`, with the job as `GET /jobs/{id}` shows it, now and whenever it has changed.

    Each event holds the whole history, so whoever comes back misses nothing; with `Last-Event-ID` what was
    told already is not told again. A comment comes every 15 seconds. The answer ends with the job, after 15
    minutes, when the server stops, and when its key is revoked. 503 when 500 requests wait already, 429 when
    125 of the same caller do.
    """
    watch = watch_of(request)
    require_room(watch)
    hold(request, "waiting requests", MAX_WAITING // 4)
    found = await read_job(runtime, job_id)
    if found.ended and last_event_id == found.mark:
        return Response(status_code=204)  # to EventSource: do not connect again
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    told = _events(job_id, request, runtime, watch, last_event_id)
    return StreamingResponse(told, media_type="text/event-stream", headers=headers)


async def _events(
    job_id: JobId, request: Request, runtime: Runtime, watch: JobWatch, last: str | None
) -> AsyncIterator[str | bytes]:
    loop = asyncio.get_running_loop()
    ends = loop.time() + LONGEST_S
    with watch.watching(job_id) as watcher:
        yield f"retry: {RETRY_MS}\n\n"
        while not watch.stopping.is_set() and loop.time() < ends:
            if not await still_good(request):
                return
            try:
                async with runtime.database() as db:
                    found = await reading(db, job_id)
            except DatabaseAwayError:
                yield ": the database is away\n\n"
                await watcher.changed(AGAIN_S)
                continue
            if found is None:
                return
            watcher.seen = found.mark
            if watcher.seen != last:
                last = watcher.seen
                yield await asyncio.to_thread(_event, found)
            if found.ended:
                return
            beat = loop.time() + HEARTBEAT_S
            while not await watcher.changed(CHECK_S):
                if loop.time() >= ends or not await still_good(request):
                    return
                if loop.time() >= beat:
                    beat = loop.time() + HEARTBEAT_S
                    yield ": alive\n\n"


def _event(found: JobReading) -> bytes:
    return b"event: job\nid: %s\ndata: %s\n\n" % (found.mark.encode(), written(found.view))
