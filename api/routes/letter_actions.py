"""What operators do with letters; who, when and why is kept in the letter's history."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Requires, runtime_of
from api.body import as_model, body_schema, read_json
from api.problems import FieldError, Problem
from api.routes.dead_letters import dossier_view
from api.runtime import Runtime
from storage import discards, letters
from storage.api_keys import Principal
from storage.letter_actions import MAX_NOTE, ActionRefusedError

Context = Annotated[Runtime, Depends(runtime_of)]
Operator = Annotated[Principal, Depends(Requires("operate"))]

router = APIRouter(tags=["dead letters"])


class Discard(BaseModel):
    """Why it is not to be sent again."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    note: Annotated[str, Field(min_length=1, max_length=MAX_NOTE, pattern=r"\S")]


class Restore(BaseModel):
    """Why it is needed after all."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""


DISCARD = body_schema(Discard, {"note": "the old client sent XML"})
RESTORE = body_schema(Restore, {"note": "needed after all"})


@router.post("/dead-letters/{letter_id}/discard", summary="It is not to be sent again", openapi_extra=DISCARD)
async def discard(letter_id: int, request: Request, runtime: Context, principal: Operator) -> Response:
    """Its bytes are kept until retention takes them; its job stays DEAD. Answers with the letter.

    409 while a replay of it is not over, and when it was replayed with a known outcome.
    """
    asked = await read_json(request, runtime.config.api.body_limit, _discard)
    try:
        async with runtime.database() as db:
            await discards.discard(db, [letter_id], by=principal.name, why=asked.note)
    except ActionRefusedError as error:
        raise refused(letter_id, error) from error
    return await _shown(letter_id, runtime)


@router.post("/dead-letters/{letter_id}/restore", summary="Undo its discard", openapi_extra=RESTORE)
async def restore(letter_id: int, request: Request, runtime: Context, principal: Operator) -> Response:
    """It is what it was before. Answers with the letter. 409 when it is not discarded."""
    asked = await read_json(request, runtime.config.api.body_limit, _restore)
    try:
        async with runtime.database() as db:
            await discards.restore(db, [letter_id], by=principal.name, why=asked.note)
    except ActionRefusedError as error:
        raise refused(letter_id, error) from error
    return await _shown(letter_id, runtime)


async def _shown(letter_id: int, runtime: Runtime) -> Response:
    async with runtime.database() as db:
        found = await letters.dossier(db, letter_id)
    return await asyncio.to_thread(dossier_view, found)


def refused(letter_id: int, error: ActionRefusedError) -> Problem:
    """404 for a letter that is not on record, else 409."""
    if not error.conflict:
        return Problem(404, "unknown-letter", f"there is no dead letter {letter_id}")
    errors = [FieldError("letter_id", refusal.why) for refusal in error.refusals]
    return Problem(409, "not-allowed", str(error), errors)


def _discard(body: Any) -> Discard:
    return as_model(Discard, body)


def _restore(body: Any) -> Restore:
    return as_model(Restore, body)
