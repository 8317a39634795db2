"""Groups: letters that died alike, and what operators decided about them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Context, Operator, Reader
from api.body import as_model, body_schema, read_json
from api.choosing import Until
from api.filtering import Text
from api.json_text import JsonResponse
from api.paging import page_answer
from api.problems import Problem, invalid
from api.routes.dead_letters import letter_view
from api.runtime import Runtime
from storage import group_list, group_states, letters
from storage.api_keys import Principal
from storage.group_list import (
    MAX_HOURS,
    MAX_PAGE,
    AmbiguousGroupError,
    CursorError,
    GroupDetails,
    GroupFilter,
    GroupState,
    SortKey,
    UnknownGroupError,
)
from storage.group_states import Decision, MovedGroupError
from storage.letters import Letter

router = APIRouter(tags=["groups"])
NOT_ONE = (UnknownGroupError, AmbiguousGroupError, MovedGroupError)


class GroupWhy(BaseModel):
    """What there is to say, or why it is decided so."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    note: Annotated[str, Field(strict=True, min_length=1, max_length=group_states.MAX_NOTE, pattern=r"\S")]


class GroupIgnore(GroupWhy):
    """`until` (RFC 3339): ignored up to then, without it for good."""

    until: Until | None = None


NOTE = body_schema(GroupWhy, {"note": "the provider was down from 9 to 10"})
RESOLVE = body_schema(GroupWhy, {"note": "fixed in 1.8.2"})
IGNORE = body_schema(GroupIgnore, {"note": "the old client, gone next week", "until": "2027-02-07T00:00:00Z"})
REOPEN = body_schema(GroupWhy, {"note": "it was not the provider"})


@router.get("/groups", dependencies=[Reader], summary="Groups of dead letters")
async def page(
    runtime: Context,
    state: GroupState | None = None,
    queue: Annotated[Text | None, Query(description="work queue")] = None,
    task: Text | None = None,
    reason: Text | None = None,
    sort: Annotated[SortKey, Query(description="what comes first: the latest, or the largest")] = "last_seen",
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[Text | None, Query(description="next_cursor of the page before")] = None,
) -> Response:
    """Groups that match all that is given. `letters` is how many ever came, `counts` are of those on record.

    `next_cursor` is null on the last page. A group that gets a letter meanwhile moves to the front.
    """
    wanted = GroupFilter(state, queue, task, reason)
    try:
        async with runtime.database() as db:
            found = await group_list.page(db, wanted, sort=sort, limit=limit + 1, cursor=cursor)
    except CursorError as error:
        raise invalid("cursor", str(error)) from error
    return page_answer("groups", found, limit, lambda group: group.cursor(sort))


@router.get("/groups/{fingerprint}", dependencies=[Reader], summary="A group with notes, counts, an example")
async def show(
    fingerprint: str, runtime: Context, hours: Annotated[int, Query(ge=1, le=MAX_HOURS)] = 24
) -> Response:
    """The start of a fingerprint will do while no other begins so. `hours`: so far back, letters by hour."""
    try:
        async with runtime.database() as db:
            found = await group_list.details(db, fingerprint, hours=hours)
            example = None if found.example is None else await letters.get(db, found.example)
    except NOT_ONE as error:
        raise _not_one(fingerprint, error) from error
    return await asyncio.to_thread(_details, found, example)


@router.post(
    "/groups/{fingerprint}/notes", status_code=201, summary="Add a note to a group", openapi_extra=NOTE
)
async def add_note(fingerprint: str, request: Request, runtime: Context, principal: Operator) -> Response:
    """Kept with the key's name and the time. Answers with the group."""
    said = await read_json(request, runtime.config.api.body_limit, _why)
    try:
        async with runtime.database() as db:
            name = await group_states.note(db, fingerprint, by=principal.name, text=said.note)
    except NOT_ONE as error:
        raise _not_one(fingerprint, error) from error
    answer = await show(name, runtime, 24)
    answer.status_code = 201
    return answer


@router.post("/groups/{fingerprint}/resolve", summary="Resolve a group: it is mended", openapi_extra=RESOLVE)
async def resolve(fingerprint: str, request: Request, runtime: Context, principal: Operator) -> Response:
    """The next letter reopens the group, and alerts. Its letters stay as they are."""
    return await _decided(fingerprint, "resolve", request, runtime, principal)


@router.post(
    "/groups/{fingerprint}/ignore", summary="Ignore a group: it does not alert", openapi_extra=IGNORE
)
async def ignore(fingerprint: str, request: Request, runtime: Context, principal: Operator) -> Response:
    """Its letters are stored and counted, and never alert: until a time, or for good."""
    return await _decided(fingerprint, "ignore", request, runtime, principal)


@router.post(
    "/groups/{fingerprint}/reopen", summary="Reopen a resolved or ignored group", openapi_extra=REOPEN
)
async def reopen(fingerprint: str, request: Request, runtime: Context, principal: Operator) -> Response:
    return await _decided(fingerprint, "reopen", request, runtime, principal)


async def _decided(
    fingerprint: str, decision: Decision, request: Request, runtime: Runtime, principal: Principal
) -> Response:
    check = _why_ignored if decision == "ignore" else _why
    said = await read_json(request, runtime.config.api.body_limit, check)
    until = said.until if isinstance(said, GroupIgnore) else None
    if until is not None and until <= datetime.now(UTC):
        raise invalid("until", "is in the past")
    try:
        async with runtime.database() as db:
            name = await group_states.decide(
                db, fingerprint, decision, by=principal.name, why=said.note, until=until
            )
    except NOT_ONE as error:
        raise _not_one(fingerprint, error) from error
    return await show(name, runtime, 24)


def _details(found: GroupDetails, example: Letter | None) -> Response:
    return JsonResponse(found.as_json(None if example is None else letter_view(example)))


def _why(body: Any) -> GroupWhy:
    return as_model(GroupWhy, body)


def _why_ignored(body: Any) -> GroupWhy:
    return as_model(GroupIgnore, body)


def _not_one(fingerprint: str, error: Exception) -> Problem:
    if isinstance(error, AmbiguousGroupError):
        return Problem(409, "ambiguous-group", str(error))
    if isinstance(error, MovedGroupError):
        return Problem(409, "moved-group", str(error))
    return Problem(404, "unknown-group", f"there is no group {fingerprint[:64]!r}")
