"""Replays: plans that the dead-letter consumer carries out."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import AfterValidator, Field

from api.auth import Context, Operator, Reader
from api.body import as_model, body_schema, read_json
from api.choosing import ChosenBy, LetterId, Strict
from api.filtering import Text
from api.json_text import JsonResponse
from api.problems import FieldError, Problem
from api.runtime import Runtime
from storage import replay_control, replay_plans, replays
from storage.api_keys import Principal
from storage.pool import AnyConnection
from storage.replay_control import ReplayStateError
from storage.replay_fitness import Choice, Fitness
from storage.replay_plans import MAX_PAGE, Replay, UnknownReplayError
from storage.replay_selection import survey, targets
from storage.replays import (
    BREAKER,
    MAX_LETTERS,
    MAX_NOTE,
    MIN_RATE,
    Asked,
    NothingToReplayError,
    ReplayConflictError,
    ReplayRefusedError,
    UnknownLettersError,
)
from topology import replay_targets

router = APIRouter(tags=["replays"])
# 100,000 letters take several seconds to be frozen.
CREATE_S = 120.0
MAX_TOLD = 100
Number = Annotated[int, Field(ge=1, le=MAX_LETTERS)]


def _may_be_a_queue(name: str) -> str:
    if why := replay_targets.wrong_name(name):
        raise ValueError(why)
    return name


class ReplayRequest(Strict):
    """`letter_ids` in the order in which they are to be sent, or a `filter`: one of the two.

    `rate`: letters per second. `canary`: so many first, the rest once these went well. `breaker`: paused
    once so many of a group died again as before, if more than half did; 0: never. `limit`: the oldest so
    many. `to`: a queue in place of each letter's own. `force`: also what may have arrived before or was
    replayed too often. `skip_ineligible`: of ids, those that cannot be replayed are left out. `dry_run`: only
    tell.
    """

    letter_ids: Annotated[list[LetterId], Field(min_length=1, max_length=MAX_LETTERS)] | None = None
    filter: ChosenBy | None = None
    limit: Number | None = None
    to: Annotated[Text, AfterValidator(_may_be_a_queue)] | None = None
    rate: Annotated[float, Field(ge=MIN_RATE, lt=1e9)] | None = None
    canary: Number | None = None
    breaker: Annotated[int, Field(ge=0, le=MAX_LETTERS)] = BREAKER
    force: bool = False
    skip_ineligible: bool = False
    dry_run: bool = False
    note: Annotated[str, Field(max_length=MAX_NOTE)] | None = None

    @property
    def choice(self) -> Choice:
        return self.filter.letters if self.filter is not None else (self.letter_ids or [])

    def by(self, name: str) -> Asked:
        """How it is to be done. A breaker that is named is insisted on."""
        return Asked(
            name, self.note, self.rate, self.canary, self.breaker or None, self.limit,
            skip_unfit=self.skip_ineligible, insists="breaker" in self.model_fields_set,
        )  # fmt: skip


class ReplayWhy(Strict):
    """Why it is paused, resumed or cancelled."""

    note: Annotated[str, Field(max_length=MAX_NOTE)] = ""


REPLAY = body_schema(
    ReplayRequest,
    {"filter": {"queue": "payments", "since": "2h"}, "rate": 20, "canary": 5, "note": "the provider is back"},
)
WHY = body_schema(ReplayWhy, {"note": "the provider is slow"})
Position = Annotated[int, Query(ge=0, le=2**31 - 1, description="`next` of the page before")]


@router.post("/replays", status_code=202, summary="Replay dead letters", openapi_extra=REPLAY)
async def create(request: Request, runtime: Context, principal: Operator) -> Response:
    """Freeze these letters into a plan. A named letter that cannot be replayed refuses the plan.

    With `dry_run` 200, and what would be sent, of what, to where, and what not and why; `refused` when named
    letters would be, all of them. 409 when a replay of
    a letter is outstanding, or its state does not allow one, or none of a filter can be replayed.
    """
    asked = await read_json(request, runtime.config.api.body_limit, _asked)
    async with runtime.choosing.turn():
        # Without a connection: a broker that is away takes ten seconds.
        fitness = await _fitness(asked, runtime)
        async with runtime.database(CREATE_S) as db:
            if asked.dry_run:
                selection = await survey(db, asked.choice, fitness)
                refused_all = replays.refuses(asked.choice, selection, skip_unfit=asked.skip_ineligible)
                to_send = 0 if refused_all else min(selection.letters, asked.limit or MAX_LETTERS)
                return JsonResponse(selection.as_json() | {"to_send": to_send, "refused": refused_all})
            try:
                plan = await replays.create(db, asked.choice, asked.by(principal.name), fitness)
            except NothingToReplayError as error:
                raise Problem(409, "not-replayable", str(error)) from error
            except ReplayRefusedError as error:
                raise refused(error) from error
            answer = await _with_items(db, plan, 100, 0)
    return JsonResponse(answer, 202, {"Location": f"/replays/{plan.id}"})


@router.get("/replays", dependencies=[Reader], summary="Replays, the newest first")
async def page(
    runtime: Context,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[Text | None, Query(description="next_cursor of the page before")] = None,
) -> Response:
    """`next_cursor` is null on the last page."""
    try:
        async with runtime.database() as db:
            found, more = await replay_plans.page(db, limit=limit, after=cursor)
    except UnknownReplayError as error:
        raise Problem(
            422, "invalid", "the request is not valid", [FieldError("cursor", "no replay has this id")]
        ) from error
    return JsonResponse({"replays": [plan.as_json() for plan in found], "next_cursor": more})


@router.get("/replays/{replay_id}", dependencies=[Reader], summary="A replay and what became of each letter")
async def show(
    replay_id: str,
    runtime: Context,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="of its letters")] = 100,
    after: Position = 0,
) -> Response:
    """How many letters are in which state and had which outcome, `rate_now` in letters per second, `eta_s`.

    `items` in the order in which they are sent; `next` is null on the last page.
    """
    try:
        async with runtime.database() as db:
            answer = await _with_items(db, await replay_plans.get(db, replay_id), limit, after)
    except UnknownReplayError as error:
        raise _unknown(replay_id) from error
    return JsonResponse(answer)


@router.post("/replays/{replay_id}/pause", summary="Pause a replay", openapi_extra=WHY)
async def pause(replay_id: str, request: Request, runtime: Context, principal: Operator) -> Response:
    """What is on its way, two batches at most, still arrives. 409 when it is not running."""
    return await _act(replay_id, "pause", request, runtime, principal)


@router.post("/replays/{replay_id}/resume", summary="Resume a paused replay", openapi_extra=WHY)
async def resume(replay_id: str, request: Request, runtime: Context, principal: Operator) -> Response:
    """A canary that paused it is over then, and its breaker counts from here. 409 when it is not paused."""
    return await _act(replay_id, "resume", request, runtime, principal)


@router.post("/replays/{replay_id}/cancel", summary="Cancel a replay for good", openapi_extra=WHY)
async def cancel(replay_id: str, request: Request, runtime: Context, principal: Operator) -> Response:
    """Letters not sent yet are open again. What is on its way still arrives. 409 when it is over already."""
    return await _act(replay_id, "cancel", request, runtime, principal)


async def _act(
    replay_id: str, action: Literal["pause", "resume", "cancel"], request: Request, runtime: Runtime,
    principal: Principal,
) -> Response:  # fmt: skip
    said = await read_json(request, runtime.config.api.body_limit, _why)
    act = {"pause": replay_control.pause, "resume": replay_control.resume, "cancel": replay_control.cancel}
    try:
        async with runtime.controlling.turn(), runtime.database(CREATE_S) as db:
            plan = await act[action](db, replay_id, by=principal.name, why=said.note)
    except UnknownReplayError as error:
        raise _unknown(replay_id) from error
    except ReplayStateError as error:
        raise Problem(409, "replay-state", str(error)) from error
    return JsonResponse(plan.as_json())


async def _fitness(asked: ReplayRequest, runtime: Runtime) -> Fitness:
    config = runtime.config
    if asked.to is not None:
        queues = [asked.to]
    else:
        async with runtime.database(CREATE_S) as db:
            queues = await targets(db, asked.choice)
    found = await asyncio.to_thread(
        replay_targets.look, config.address, config.topology, queues, config.replays, "redrive-api-replay",
        watched=config.watched,
    )  # fmt: skip
    return Fitness(
        asked.to, found.refused, found.job_queues, found.largest_body, config.replays.laps, found.in_vain,
        asked.force,
    )  # fmt: skip


async def _with_items(db: AnyConnection, plan: Replay, limit: int, after: int) -> dict[str, Any]:
    items, more = await replay_plans.items(db, plan.id, limit=limit, after=after)
    return plan.as_json() | {"items": [item.as_json() for item in items], "next": more}


def _asked(body: Any) -> ReplayRequest:
    asked = as_model(ReplayRequest, body)
    if (asked.letter_ids is None) is (asked.filter is None):
        wrong = FieldError("letter_ids", "letter_ids or filter: one of the two")
        raise Problem(422, "invalid", "the request is not valid", [wrong])
    return asked


def _why(body: Any) -> ReplayWhy:
    return as_model(ReplayWhy, body)


def _unknown(replay_id: str) -> Problem:
    return Problem(404, "unknown-replay", f"there is no replay {replay_id[:64]!r}")


def refused(error: ReplayRefusedError) -> Problem:
    """422 for letters that are not on record, else 409."""
    errors = [
        FieldError("letter_ids", f"letter {refusal.letter_id} {refusal.why}")
        for refusal in error.refusals[:MAX_TOLD]
    ]
    total = len(error.refusals)
    if isinstance(error, UnknownLettersError):
        return Problem(422, "unknown-letters", "some letters are not on record", errors, total=total)
    if isinstance(error, ReplayConflictError):
        return Problem(
            409, "replay-outstanding", "another replay of these letters is outstanding", errors, total=total
        )
    return Problem(409, "not-replayable", "some letters cannot be replayed", errors, total=total)
