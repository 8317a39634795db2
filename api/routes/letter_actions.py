"""What operators do with letters; who, when and why is kept in the letter's history."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response
from pydantic import Field

from api.auth import Context, Operator
from api.body import as_model, body_schema, read_json
from api.choosing import LetterId, Strict
from api.json_text import JsonResponse
from api.problems import FieldError, Problem
from api.routes.dead_letters import dossier_view
from api.runtime import Runtime
from storage import discards, letter_edits, letters
from storage.api_keys import Principal
from storage.discards import Decision
from storage.letter_actions import MAX_NOTE, ActionRefusedError
from storage.letter_edits import NewEdit
from storage.letters import Dossier, UnknownLetterError
from storage.text import safe_json
from topology import editing
from topology.editing import EditRefusedError
from topology.json_patch import PatchError, apply
from topology.letter_document import NoDocumentError
from topology.messages import Message
from topology.redaction import parse_paths
from topology.spec import Topology

router = APIRouter(tags=["dead letters"])
Id = Annotated[LetterId, Path()]


class Discard(Strict):
    """Why it is not to be sent again."""

    note: Annotated[str, Field(min_length=1, max_length=MAX_NOTE, pattern=r"\S")]


class LetterWhy(Strict):
    """Why."""

    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""


class LetterChange(Strict):
    """A JSON Patch (RFC 6902) of `{"args": […], "kwargs": {…}}`, or of the body of what is no task.

    `validate: false` keeps what a worker or the job's model refuses. `original`: of the letter as it came,
    not of its last edit. `dry_run`: only check it, and tell what would be changed.
    """

    patch: Annotated[list[Any], Field(max_length=10_000)]
    validated: Annotated[bool, Field(alias="validate")] = True
    original: bool = False
    dry_run: bool = False
    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""


CHANGE = body_schema(
    LetterChange,
    {"patch": [{"op": "replace", "path": "/kwargs/amount_cents", "value": 500}], "note": "a typo"},
)
DISCARD = body_schema(Discard, {"note": "the old client sent XML"})
RESTORE = body_schema(LetterWhy, {"note": "needed after all"})
WITHDRAW = body_schema(LetterWhy, {"note": "it was right as it came"})


@router.post("/dead-letters/{letter_id}/discard", summary="Discard a dead letter", openapi_extra=DISCARD)
async def discard(letter_id: Id, request: Request, runtime: Context, principal: Operator) -> Response:
    """Its bytes are kept; its job stays DEAD. Answers with the letter.

    409 while a replay of it is not over, and when it was replayed with a known outcome.
    """
    asked = await read_json(request, runtime.config.api.body_limit, _discard)
    return await _decided(discards.DISCARD, letter_id, asked.note, runtime, principal)


@router.post("/dead-letters/{letter_id}/restore", summary="Restore a discarded letter", openapi_extra=RESTORE)
async def restore(letter_id: Id, request: Request, runtime: Context, principal: Operator) -> Response:
    """It is what it was before. Answers with the letter. 409 when it is not discarded."""
    asked = await read_json(request, runtime.config.api.body_limit, _note)
    return await _decided(discards.RESTORE, letter_id, asked.note, runtime, principal)


async def _decided(
    decision: Decision, letter_id: int, why: str, runtime: Runtime, principal: Principal
) -> Response:
    try:
        async with runtime.database() as db:
            await discards.decide(db, decision, [letter_id], by=principal.name, why=why)
    except ActionRefusedError as error:
        raise refused(letter_id, error) from error
    return await _shown(letter_id, runtime)


@router.post(
    "/dead-letters/{letter_id}/edit", summary="Edit what a replay of a letter sends", openapi_extra=CHANGE
)
async def edit(letter_id: Id, request: Request, runtime: Context, principal: Operator) -> Response:
    """The letter is kept as it came; the edit has a message id of its own, the same job, and is checked.

    Answers with the letter, with `dry_run` with the changes and by what they were checked. 422 when it does
    not pass, 409 when the letter is not open.
    """
    asked = await read_json(request, runtime.config.api.body_limit, _change)
    found = await _found(letter_id, runtime)
    topology = runtime.config.topology
    new = await asyncio.to_thread(_edited, found, asked, topology)
    if asked.dry_run:
        told = {"letter": letter_id, "changes": new.changes, "checked": new.checked}
        return JsonResponse(safe_json(told))
    last = None if found.edit is None else found.edit.id
    try:
        async with runtime.database() as db:
            await letter_edits.store(db, letter_id, new, by=principal.name, why=asked.note, last=last)
    except ActionRefusedError as error:
        raise refused(letter_id, error) from error
    return await _shown(letter_id, runtime)


@router.post(
    "/dead-letters/{letter_id}/withdraw", summary="Withdraw the edit of a letter", openapi_extra=WITHDRAW
)
async def withdraw(letter_id: Id, request: Request, runtime: Context, principal: Operator) -> Response:
    """A replay sends it as it came again. Answers with the letter. 409 when no edit is in force."""
    asked = await read_json(request, runtime.config.api.body_limit, _note)
    try:
        async with runtime.database() as db:
            await letter_edits.withdraw(db, letter_id, by=principal.name, why=asked.note)
    except ActionRefusedError as error:
        raise refused(letter_id, error) from error
    return await _shown(letter_id, runtime)


def _edited(found: Dossier, asked: LetterChange, topology: Topology) -> NewEdit:
    try:
        made = editing.edit(
            Message(*found.to_send(original=asked.original)),
            lambda document: apply(document, asked.patch),
            topology=topology,
            validate=asked.validated,
            redacted=parse_paths(",".join(found.marks.redacted)),
        )
    except PatchError as error:
        raise Problem(422, "invalid", str(error), [FieldError("patch", str(error))]) from error
    except EditRefusedError as error:
        raise Problem(422, "invalid", str(error), [FieldError(*fault) for fault in error.faults]) from error
    except NoDocumentError as error:
        raise Problem(409, "not-allowed", f"letter {found.letter.id}: {error}") from error
    return NewEdit(made.message_id, made.message.properties, made.message.body, made.changes, made.checked)


async def _found(letter_id: int, runtime: Runtime) -> Dossier:
    try:
        async with runtime.database() as db:
            return await letters.dossier(db, letter_id)
    except UnknownLetterError as error:
        raise Problem(404, "unknown-letter", f"there is no dead letter {letter_id}") from error


async def _shown(letter_id: int, runtime: Runtime) -> Response:
    return await asyncio.to_thread(dossier_view, await _found(letter_id, runtime))


def refused(letter_id: int, error: ActionRefusedError) -> Problem:
    """404 for a letter that is not on record, else 409."""
    if not error.conflict:
        return Problem(404, "unknown-letter", f"there is no dead letter {letter_id}")
    errors = [FieldError("letter_id", refusal.why) for refusal in error.refusals]
    return Problem(409, "not-allowed", str(error), errors)


def _discard(body: Any) -> Discard:
    return as_model(Discard, body)


def _note(body: Any) -> LetterWhy:
    return as_model(LetterWhy, body)


def _change(body: Any) -> LetterChange:
    return as_model(LetterChange, body)
