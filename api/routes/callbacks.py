"""Callbacks: whom each job's end was told, and having one told again."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic import Field

from api.auth import Context, Operator, Reader
from api.body import as_model, body_schema, read_json
from api.choosing import Strict
from api.filtering import Text
from api.json_text import JsonResponse
from api.paging import page_answer
from api.problems import Problem, invalid
from storage import callback_list
from storage.callback_list import MAX_NOTE, MAX_PAGE, CallbackFilter, CallbackState, UnknownCallbackError
from storage.group_list import CursorError

router = APIRouter(tags=["callbacks"])
CallbackId = Annotated[UUID, Path()]


class CallbackWhy(Strict):
    """CallbackWhy it is sent again."""

    note: Annotated[str, Field(max_length=MAX_NOTE, pattern=r"^[^\x00]*$")] = ""


WHY = body_schema(CallbackWhy, {"note": "the receiver is back"})


@router.get("/callbacks", dependencies=[Reader], summary="Callbacks, the newest first")
async def page(
    runtime: Context,
    state: CallbackState | None = None,
    job_id: Text | None = None,
    place: Annotated[Text | None, Query(description="host:port of the receiver")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[Text | None, Query(description="next_cursor of the page before")] = None,
) -> Response:
    """With the last answers of each. What is `dead` is not sent any more, and stays.

    `next_cursor` is null on the last page.
    """
    wanted = CallbackFilter(state, job_id, place)
    try:
        async with runtime.database() as db:
            found = await callback_list.newest(db, wanted, limit=limit + 1, cursor=cursor)
    except CursorError as error:
        raise invalid("cursor", str(error)) from error
    return page_answer("callbacks", found, limit, lambda each: each.cursor)


@router.get("/callbacks/{callback_id}", dependencies=[Reader], summary="One callback")
async def show(callback_id: CallbackId, runtime: Context) -> Response:
    try:
        async with runtime.database() as db:
            return JsonResponse((await callback_list.get(db, callback_id)).as_json())
    except UnknownCallbackError as error:
        raise _unknown(callback_id) from error


@router.post(
    "/callbacks/{callback_id}/retry", status_code=202, summary="Send a callback again now", openapi_extra=WHY
)
async def retry(callback_id: CallbackId, request: Request, runtime: Context, principal: Operator) -> Response:
    """Whatever became of it: under the same id, with all its tries before it. Answers with the callback."""
    asked = await read_json(request, runtime.config.api.body_limit, _why)
    try:
        async with runtime.database() as db:
            await callback_list.retry(db, callback_id, by=principal.name, note=asked.note)
            found = await callback_list.get(db, callback_id)
    except UnknownCallbackError as error:
        raise _unknown(callback_id) from error
    return JsonResponse(found.as_json(), 202, {"Location": f"/callbacks/{callback_id}"})


def _why(body: Any) -> CallbackWhy:
    return as_model(CallbackWhy, body)


def _unknown(callback_id: UUID) -> Problem:
    return Problem(404, "unknown-callback", f"there is no callback {callback_id}")
