"""Discards and restores of several letters at once: those that are named, or what a filter finds."""

from __future__ import annotations

from typing import Annotated, Any, Self

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field, model_validator

from api.auth import Context, Operator
from api.body import as_model, body_schema, read_json
from api.choosing import ChosenBy, LetterId, Strict
from api.json_text import JsonResponse
from api.problems import FieldError, Problem
from api.runtime import Runtime
from storage import discards
from storage.api_keys import Principal
from storage.discards import DISCARD, RESTORE, Decision
from storage.letter_actions import MAX_NOTE, MOST_LETTERS, ActionRefusedError

router = APIRouter(tags=["dead letters"])
# 100,000 letters take seconds, and a search for text reads every body.
DECIDE_S = 120.0
Count = Annotated[int, Field(ge=0, le=MOST_LETTERS)]


class SeveralLetters(Strict):
    """`letter_ids`, or a `filter`: one of the two.

    `dry_run`: only tell how many letters the filter finds. `expect`: how many these were; when they are
    others by now, nothing is done.
    """

    letter_ids: Annotated[list[LetterId], Field(min_length=1, max_length=MOST_LETTERS)] | None = None
    filter: ChosenBy | None = None
    expect: Count | None = None
    dry_run: bool = False
    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""

    @model_validator(mode="after")
    def _names_or_chooses(self) -> Self:
        if (self.letter_ids is None) is (self.filter is None):
            raise ValueError("letter_ids or filter: one of the two")
        if self.filter is None and (self.dry_run or self.expect is not None):
            raise ValueError("dry_run and expect go with a filter")
        if self.filter is not None and self.dry_run is (self.expect is not None):
            raise ValueError("a filter goes with dry_run, or with expect: the number that a dry run told")
        return self


class SeveralLettersWhy(SeveralLetters):
    """The same; `note` says why, and is kept with each letter."""

    note: Annotated[str, Field(min_length=1, max_length=MAX_NOTE, pattern=r"\S")]


DISCARD_BODY = body_schema(
    SeveralLettersWhy,
    {"filter": {"queue": "payments", "reason": "malformed"}, "expect": 12, "note": "the old client sent XML"},
)
RESTORE_BODY = body_schema(SeveralLetters, {"letter_ids": [17, 18], "note": "needed after all"})


@router.post("/dead-letters/discard", summary="Discard several dead letters", openapi_extra=DISCARD_BODY)
async def discard(request: Request, runtime: Context, principal: Operator) -> Response:
    """Of ids all or none; of a filter those that allow it, 1,000 in a transaction. Answers with how many.

    With `dry_run` with `letters`, and `left_out` by why. 409 when a named letter does not allow it, or the
    filter finds another number than `expect`.
    """
    asked = await read_json(request, runtime.config.api.body_limit, _with_why)
    return await _decided(DISCARD, asked, runtime, principal)


@router.post("/dead-letters/restore", summary="Restore several discarded letters", openapi_extra=RESTORE_BODY)
async def restore(request: Request, runtime: Context, principal: Operator) -> Response:
    """Each is what it was before. Otherwise as `POST /dead-letters/discard`."""
    asked = await read_json(request, runtime.config.api.body_limit, _several)
    return await _decided(RESTORE, asked, runtime, principal)


async def _decided(
    decision: Decision, asked: SeveralLetters, runtime: Runtime, principal: Principal
) -> Response:
    done = 0
    async with runtime.choosing.turn(), runtime.database(DECIDE_S) as db:
        if asked.filter is None:
            done = await _named(decision, asked, principal, db)
            return JsonResponse({decision.done: done})
        wanted = asked.filter.letters
        found = await discards.estimate(db, decision, wanted)
        if asked.dry_run:
            return JsonResponse({"letters": found.letters, "left_out": found.left_out})
        if found.letters != asked.expect:
            told = f"the filter finds {found.letters} letters now, and not {asked.expect}"
            raise Problem(409, "changed", told, [FieldError("expect", told)])
        async for number in discards.decide_all(
            db, decision, wanted, found=found, by=principal.name, why=asked.note
        ):
            done += number
    return JsonResponse({decision.done: done})


async def _named(decision: Decision, asked: SeveralLetters, principal: Principal, db: Any) -> int:
    try:
        return await discards.decide(db, decision, asked.letter_ids or (), by=principal.name, why=asked.note)
    except ActionRefusedError as error:
        unknown = not error.conflict
        errors = [
            FieldError("letter_ids", f"letter {each.letter_id} {each.why}")
            for each in error.refusals
            if each.conflict is not unknown
        ]
        if unknown:
            raise Problem(422, "unknown-letters", "some letters are not on record", errors) from error
        raise Problem(409, "not-allowed", "some letters do not allow it", errors) from error


def _with_why(body: Any) -> SeveralLetters:
    return as_model(SeveralLettersWhy, body)


def _several(body: Any) -> SeveralLetters:
    return as_model(SeveralLetters, body)
