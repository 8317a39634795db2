"""Replays: plans that the dead-letter consumer carries out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.auth import Context, Operator, Reader
from api.body import read_json
from api.json_text import JsonResponse
from api.problems import FieldError, Problem, field_errors
from storage import replays
from storage.replays import (
    MAX_LETTERS,
    ReplayConflictError,
    ReplayRefusedError,
    UnknownLettersError,
    UnknownReplayError,
)

router = APIRouter(tags=["replays"])


class ReplayRequest(BaseModel):
    """Letters in the order in which they are to be sent. `rate`: letters per second."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    letter_ids: list[Annotated[int, Field(ge=1, le=2**63 - 1)]] = Field(min_length=1, max_length=MAX_LETTERS)
    rate: Annotated[float, Field(gt=0, lt=1e9)] | None = None
    note: Annotated[str, Field(max_length=2_000)] | None = None


REQUEST_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": ReplayRequest.model_json_schema(),
                "example": {"letter_ids": [17, 18], "rate": 5, "note": "the provider is back"},
            }
        },
    }
}


@router.post("/replays", status_code=202, summary="Replay dead letters", openapi_extra=REQUEST_SCHEMA)
async def create(request: Request, runtime: Context, principal: Operator) -> Response:
    """Freeze these letters into a plan. All or nothing: a letter that cannot be replayed refuses the plan.

    409 when a replay of one of them is outstanding, or its state does not allow one.
    """
    asked = await read_json(request, runtime.config.api.body_limit, _asked)
    try:
        async with runtime.database() as db:
            plan = await replays.create(
                db, asked.letter_ids, requested_by=principal.name, note=asked.note, rate=asked.rate
            )
    except ReplayRefusedError as error:
        raise refused(error) from error
    return JsonResponse(plan.as_json(), 202, {"Location": f"/replays/{plan.id}"})


@router.get("/replays", dependencies=[Reader], summary="Replays, the newest first")
async def recent(runtime: Context, limit: Annotated[int, Query(ge=1, le=1_000)] = 50) -> Response:
    async with runtime.database() as db:
        found = await replays.recent(db, limit=limit)
    return JsonResponse({"replays": [plan.as_json() for plan in found]})


@router.get("/replays/{replay_id}", dependencies=[Reader], summary="A replay and what became of each letter")
async def show(replay_id: str, runtime: Context) -> Response:
    try:
        async with runtime.database() as db:
            plan = await replays.get(db, replay_id)
    except UnknownReplayError as error:
        raise Problem(404, "unknown-replay", f"there is no replay {replay_id!r}") from error
    return JsonResponse(plan.as_json())


def _asked(body: Any) -> ReplayRequest:
    try:
        return ReplayRequest.model_validate(body)
    except ValidationError as error:
        errors, total = field_errors(error), error.error_count()
        raise Problem(422, "invalid", "the request is not valid", errors, total=total) from error


def refused(error: ReplayRefusedError) -> Problem:
    """422 for letters that are not on record, else 409."""
    errors = [
        FieldError("letter_ids", f"letter {refusal.letter_id} {refusal.why}") for refusal in error.refusals
    ]
    if isinstance(error, UnknownLettersError):
        return Problem(422, "unknown-letters", "some letters are not on record", errors)
    if isinstance(error, ReplayConflictError):
        return Problem(409, "replay-outstanding", "another replay of these letters is outstanding", errors)
    return Problem(409, "not-replayable", "some letters cannot be replayed", errors)
