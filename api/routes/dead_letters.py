"""Dead letters: found by what is known of them, and read as dossiers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from api.auth import Requires, runtime_of
from api.filtering import Filter
from api.json_text import JsonResponse
from api.problems import Problem
from api.runtime import Runtime
from storage import letters
from storage.letters import MAX_PAGE, Dossier, Letter, UnknownLetterError
from topology.letter_view import view_body, view_properties

Context = Annotated[Runtime, Depends(runtime_of)]

# Raw properties of a listed letter whose headers are shown: bytes. The letter by itself shows all.
MAX_LISTED = 8_192

router = APIRouter(tags=["dead letters"], dependencies=[Depends(Requires("read"))])


@router.get("/dead-letters", summary="Dead letters, the newest first")
async def page(
    runtime: Context,
    wanted: Filter,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[
        int | None, Query(ge=1, le=2**63 - 1, description="next_cursor of the page before")
    ] = None,
) -> Response:
    """Letters that match all that is given. `next_cursor` is null on the last page.

    Headers of more than 8 KiB are left out, as `{"$left_out": bytes}`: ask for that letter.
    """
    async with runtime.database() as db:
        found = await letters.page(db, wanted, limit=limit + 1, before_id=cursor)
    # In a thread, as headers may take long to take apart, and the event loop has to go on.
    return await asyncio.to_thread(_page, found[:limit], len(found) > limit)


def _page(shown: Sequence[Letter], more: bool) -> Response:
    return JsonResponse(
        {"letters": [letter_view(letter) for letter in shown], "next_cursor": shown[-1].id if more else None}
    )


@router.get("/dead-letters/{letter_id}", summary="One dead letter with all that is known")
async def show(letter_id: int, runtime: Context) -> Response:
    """Its bytes made readable, the broker's death history, attempts with tracebacks, job, and replays."""
    try:
        async with runtime.database() as db:
            found = await letters.dossier(db, letter_id)
    except UnknownLetterError as error:
        raise Problem(404, "unknown-letter", f"there is no dead letter {letter_id}") from error
    return await asyncio.to_thread(_dossier, found)


def _dossier(found: Dossier) -> Response:
    view = view_properties(found.letter.properties)
    return JsonResponse(
        found.as_json(
            headers=view.headers, deaths=view.deaths, properties=view.properties, body=view_body(found.body)
        )
    )


def letter_view(letter: Letter) -> dict[str, object]:
    """A letter as lists show it."""
    view = view_properties(letter.properties)
    size = len(letter.properties)
    headers = view.headers if size <= MAX_LISTED else {"$left_out": size}
    return letter.as_json(headers=headers, deaths=view.deaths)
