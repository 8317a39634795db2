"""Dead letters: found by what is known of them, and read as dossiers."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import AfterValidator

from api.auth import Context, Reader
from api.filtering import Filter, Text
from api.json_text import JsonResponse
from api.problems import Problem, invalid
from storage import letter_pages, letter_stats, letters
from storage.letter_pages import MAX_PAGE, OTHER_FILTER, Cursor, Page
from storage.letter_stats import MAX_HOURS
from storage.letters import Dossier, Letter, UnknownLetterError
from topology.letter_view import view_letter, view_properties


def _is_a_cursor(text: str) -> str:
    Cursor.parse(text)
    return text


CursorText = Annotated[Text, AfterValidator(_is_a_cursor)]
# Raw properties of a listed letter whose headers are shown: bytes. The letter by itself shows all.
MAX_LISTED = 8_192

router = APIRouter(tags=["dead letters"], dependencies=[Reader])


@router.get("/dead-letters", summary="Dead letters, the newest first")
async def page(
    runtime: Context,
    wanted: Filter,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[CursorText | None, Query(description="next_cursor of the page before")] = None,
) -> Response:
    """Letters that match all that is given, the last stored first; with a time, the last that died first.

    `next_cursor` is null on the last page. A search for `text` ends a page after a short while: such a
    page may be empty, and the next one goes on.

    Headers of more than 8 KiB are left out, as `{"$left_out": bytes}`: ask for that letter.
    """
    after = None if cursor is None else Cursor.parse(cursor)
    if after is not None and not after.fits(wanted):
        raise invalid("cursor", OTHER_FILTER)
    async with runtime.database() as db:
        found = await letter_pages.page(db, wanted, limit=limit, after=after)
    # In a thread, as headers may take long to take apart, and the event loop has to go on.
    return await asyncio.to_thread(_page, found)


def _page(found: Page) -> Response:
    cursor = None if found.next is None else str(found.next)
    return JsonResponse({"letters": [letter_view(each) for each in found.letters], "next_cursor": cursor})


@router.get("/dead-letters/stats", summary="How many dead letters")
async def stats(runtime: Context, hours: Annotated[int, Query(ge=1, le=MAX_HOURS)] = 24) -> Response:
    """By state, queue, reason and hour of storing; the largest undecided groups; the oldest undecided letter.

    Copies of a letter are not counted. `hours`: so far back, letters by hour.
    """
    async with runtime.database() as db:
        return JsonResponse(await letter_stats.stats(db, hours=hours))


@router.get("/dead-letters/{letter_id}", summary="One dead letter with all that is known")
async def show(letter_id: int, runtime: Context) -> Response:
    """Its bytes made readable, the broker's death history, attempts with tracebacks, job, and replays."""
    try:
        async with runtime.database() as db:
            found = await letters.dossier(db, letter_id)
    except UnknownLetterError as error:
        raise Problem(404, "unknown-letter", f"there is no dead letter {letter_id}") from error
    return await asyncio.to_thread(dossier_view, found)


def dossier_view(found: Dossier) -> Response:
    """All that is known of one letter. Takes long for large ones: for a thread."""
    edited = view_letter(found.edit.properties, found.edit.body) if found.edit else None
    return JsonResponse(found.as_json(view_letter(found.letter.properties, found.body), edited))


def letter_view(letter: Letter) -> dict[str, object]:
    """A letter as lists show it."""
    view = view_properties(letter.properties)
    size = len(letter.properties)
    headers = view.headers if size <= MAX_LISTED else {"$left_out": size}
    return letter.as_json(headers=headers, deaths=view.deaths)
