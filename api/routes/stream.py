"""New letters and the progress of replays as server-sent events.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import StreamingResponse

from api.auth import Context, Reader
from api.filtering import Filter
from api.holding import hold, still_good
from api.problems import FieldError, Problem
from api.routes.dead_letters import letter_view
from api.runtime import Runtime
from storage import letter_feed, replay_progress
from storage.errors import DatabaseAwayError
from storage.letter_feed import LetterFeed
from storage.letter_filter import LetterFilter
from storage.letters import Letter

MAX_STREAMS = 64
POLL_S, REPLAYS_S, HEARTBEAT_S = 0.5, 2.0, 15.0
# Then the answer ends, and whoever comes back shows a key that is still good.
LONGEST_S = 900.0
RETRY_MS = 2_000

router = APIRouter(tags=["dead letters"], dependencies=[Reader])


@router.get(
    "/stream",
    summary="New letters and replays, live",
    response_class=StreamingResponse,
)
async def stream(
    request: Request, runtime: Context, wanted: Filter, last_event_id: Annotated[str | None, Header()] = None
) -> StreamingResponse:
    """Server-sent events: `letter` for each new letter that matches, `replay` when a replay got on.

    With `Last-Event-ID`, letters since then come first; a letter may come twice, its `id` tells. A comment
    comes every 15 seconds. The answer ends after 15 minutes and when the server stops: connect again.
    503 when 64 streams are open, 429 when 16 of the same caller are. A revoked key ends it.
    """
    feed = None
    if last_event_id:
        try:
            feed = LetterFeed.at(last_event_id)
        except ValueError as error:
            problem = FieldError("Last-Event-ID", str(error))
            raise Problem(422, "invalid", "the request is not valid", [problem]) from error
    open_streams: set[object] = request.app.state.streams
    if len(open_streams) >= MAX_STREAMS:
        raise Problem(
            503, "too-many-streams", f"{MAX_STREAMS} streams are open", headers={"Retry-After": "30"}
        )
    hold(request, "streams", MAX_STREAMS // 4)
    if feed is None:
        async with runtime.database() as db:
            feed = await letter_feed.from_now(db)
    reader = _Reader(request, runtime, wanted, feed, request.app.state.stopping)
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(_counted(reader, open_streams), media_type="text/event-stream", headers=headers)


class _Reader:
    """One client's stream. Nothing is looked up before what came earlier was handed to the network."""

    def __init__(
        self,
        request: Request,
        runtime: Runtime,
        wanted: LetterFilter,
        feed: LetterFeed,
        stopping: asyncio.Event,
    ) -> None:
        self._request = request
        self._runtime = runtime
        self._wanted = wanted
        self._feed = feed
        self._stopping = stopping
        self._replays: dict[str, dict[str, Any]] = {}

    async def events(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        yield f"retry: {RETRY_MS}\nid: {self._feed.position}\n\n"
        ends, beat, look = loop.time() + LONGEST_S, loop.time() + HEARTBEAT_S, 0.0
        while not self._stopping.is_set() and loop.time() < ends:
            said, away = [], False
            try:
                said += await self._letters()
                if loop.time() >= look:
                    if not await still_good(self._request):
                        return
                    said += await self._progress()
                    look = loop.time() + REPLAYS_S
            except DatabaseAwayError:
                said, away = [*said, ": the database is away\n\n"], True
            if loop.time() >= beat and not said:
                said.append(": alive\n\n")
            if said:
                beat = loop.time() + HEARTBEAT_S
                yield "".join(said)
            if self._feed.behind and not away:
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), POLL_S)

    async def _letters(self) -> list[str]:
        before = self._feed.position
        async with self._runtime.database() as db:
            found = await self._feed.next(db, self._wanted)
        position = self._feed.position
        if not found:
            # Gaps come and go; only a new place is worth a line.
            return [] if position.partition(";")[0] == before.partition(";")[0] else [f"id: {position}\n\n"]
        return await asyncio.to_thread(_spelled, found, position)

    async def _progress(self) -> list[str]:
        async with self._runtime.database() as db:
            now = await replay_progress.progress(db)
        changed = [plan for id_, plan in now.items() if self._replays.get(id_) != plan]
        self._replays = now
        return [_event("replay", plan) for plan in changed]


async def _counted(reader: _Reader, open_streams: set[object]) -> AsyncIterator[str]:
    open_streams.add(reader)
    try:
        async for said in reader.events():
            yield said
    finally:
        open_streams.discard(reader)


def _spelled(letters: Sequence[Letter], position: str) -> list[str]:
    events = [_event("letter", letter_view(letter)) for letter in letters]
    # The place after all of them goes with the last: who is cut off before gets the others again.
    return [*events[:-1], f"id: {position}\n{events[-1]}"]


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=True, allow_nan=False)}\n\n"
