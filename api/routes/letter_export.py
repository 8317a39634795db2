"""Letters as a file: what `dlq export` writes, for `dlq import`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from api.auth import Context, Reader
from api.filtering import Filter
from api.holding import hold, still_good
from api.problems import Problem
from api.runtime import Runtime
from storage.errors import DatabaseAwayError, translate
from storage.exports import ExportedLetter, export
from storage.letter_filter import LetterFilter
from storage.pool import AnyConnection, connect
from topology.letter_view import view_properties

# Of a process, and of a caller: nobody keeps the others from theirs.
MAX_EXPORTS, MAX_OF_CALLER = 2, 1
# Each holds its view of the database, and what is deleted meanwhile stays in it.
LONGEST_S = 3_600.0
# So often its key is looked at.
KEY_S = 2.0
# Above this a letter goes out in pieces, so that its base64 is never whole in memory.
IN_PIECES = 1024 * 1024
NAME = "redrive-api-export"

router = APIRouter(tags=["dead letters"], dependencies=[Reader])


@router.get(
    "/dead-letters/export", summary="Letters with their bytes, a line each",
    response_class=StreamingResponse,
)  # fmt: skip
async def export_letters(request: Request, runtime: Context, wanted: Filter) -> StreamingResponse:
    """What `dlq export` writes, for `dlq import`: body and properties in base64, and what is known beside.

    All letters are as they were at one moment, the lowest id first. An answer that breaks off before its last
    chunk is not whole. It takes an hour at most. 429 while another one of the same caller is under way, 503
    while two of others are.
    """
    hold(request, "exports", MAX_OF_CALLER)
    running: set[object] = request.app.state.exports
    if len(running) >= MAX_EXPORTS:
        detail = f"{MAX_EXPORTS} exports are under way"
        raise Problem(503, "too-many-exports", detail, headers={"Retry-After": "30"})
    lines = _lines(request, runtime, wanted, running)
    # What is wrong from the start is told by the status.
    first = await anext(lines, b"")
    headers = {"Content-Disposition": 'attachment; filename="dead-letters.jsonl"'}
    return StreamingResponse(_after(first, lines), media_type="application/x-ndjson", headers=headers)


async def _after(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async with aclosing(rest) as lines:
        yield first
        async for line in lines:
            yield line


async def _lines(
    request: Request, runtime: Runtime, wanted: LetterFilter, running: set[object]
) -> AsyncGenerator[bytes, None]:
    """On a connection of its own: those of the pool are for requests that are over soon."""
    mine = object()
    running.add(mine)
    try:
        with translate("export letters"):
            connection = await connect(runtime.config.storage, NAME)
        async with aclosing(_read(request, connection, wanted)) as lines:
            async for line in lines:
                yield line
    finally:
        running.discard(mine)


async def _read(
    request: Request, connection: AnyConnection, wanted: LetterFilter
) -> AsyncGenerator[bytes, None]:
    loop, stopping = asyncio.get_running_loop(), request.app.state.stopping
    timer = loop.call_later(LONGEST_S, connection.terminate)
    look = loop.time() + KEY_S
    try:
        async with aclosing(export(connection, wanted, idle_s=LONGEST_S)) as found:
            async for letter in found:
                if stopping.is_set():
                    raise DatabaseAwayError("the server stops; the export is not whole")
                if loop.time() >= look:
                    if not await still_good(request):
                        raise DatabaseAwayError("the key is revoked; the export is not whole")
                    look = loop.time() + KEY_S
                if len(letter.body) <= IN_PIECES:
                    yield await asyncio.to_thread(_whole, letter)
                else:
                    for piece in _line(letter):
                        yield piece
    finally:
        timer.cancel()
        connection.terminate()


def _line(letter: ExportedLetter) -> Iterator[bytes]:
    return letter.line(vars(view_properties(letter.letter.properties)))


def _whole(letter: ExportedLetter) -> bytes:
    return b"".join(_line(letter))
