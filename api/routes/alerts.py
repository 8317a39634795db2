"""Alerts: what was told and where it went, snoozes, and a test of the channels."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic import Field

from api.auth import Context, Operator, Reader
from api.body import as_model, body_schema, read_json
from api.choosing import Strict, Until
from api.filtering import Text, Time
from api.json_text import JsonResponse
from api.paging import page_answer
from api.problems import FieldError, Problem, invalid
from api.runtime import Runtime
from storage import alert_list, alert_snoozes, alerts
from storage.alert_list import MAX_PAGE, AlertFilter, AlertState, UnknownAlertError
from storage.alert_rules import AlertKind
from storage.alert_snoozes import MAX_NOTE, UnknownSubjectError
from storage.api_keys import Principal
from storage.group_list import AmbiguousGroupError, CursorError, UnknownGroupError
from storage.times import read_time, shown_time

router = APIRouter(tags=["alerts"])
Subject = Annotated[Text, Query(description="start of a fingerprint, or of a subject such as no_consumer")]


class Unsnooze(Strict):
    """`subject`: the start of a fingerprint, or another subject in full. `note`: why."""

    subject: Annotated[str, Field(min_length=1, max_length=1_000, pattern=r"^[^\x00]*$")]
    note: Annotated[str, Field(max_length=MAX_NOTE)] | None = None


class Snooze(Unsnooze):
    """The same; `until` (RFC 3339, with a zone)."""

    until: Until


SNOOZE = body_schema(
    Snooze, {"subject": "3f9a", "until": "2027-02-07T00:00:00Z", "note": "deploying the fix"}
)
UNSNOOZE = body_schema(Unsnooze, {"subject": "3f9a", "note": "deployed"})


@router.get("/alerts", dependencies=[Reader], summary="Alerts, the newest first")
async def page(
    runtime: Context,
    kind: AlertKind | None = None,
    state: AlertState | None = None,
    subject: Subject | None = None,
    since: Time | None = None,
    until: Time | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[Text | None, Query(description="next_cursor of the page before")] = None,
) -> Response:
    """With what became of each delivery. `since` and `until` are about when it was raised.

    `next_cursor` is null on the last page.
    """
    now = datetime.now(UTC)
    wanted = AlertFilter(
        kind, state, subject, read_time(since, now) if since else None,
        read_time(until, now) if until else None,
    )  # fmt: skip
    try:
        async with runtime.database() as db:
            found = await alert_list.newest(db, wanted, limit=limit + 1, cursor=cursor)
    except CursorError as error:
        raise invalid("cursor", str(error)) from error
    return page_answer("alerts", found, limit, lambda alert: alert.cursor)


@router.get("/alerts/{alert_id}", dependencies=[Reader], summary="One alert and its deliveries")
async def show(alert_id: Annotated[UUID, Path()], runtime: Context) -> Response:
    try:
        async with runtime.database() as db:
            return JsonResponse((await alert_list.get(db, alert_id)).as_json())
    except UnknownAlertError as error:
        raise Problem(404, "unknown-alert", f"there is no alert {alert_id}") from error


@router.post("/alerts/snooze", summary="Send no alert of a subject for a time", openapi_extra=SNOOZE)
async def snooze(request: Request, runtime: Context, principal: Operator) -> Response:
    """They are written down; what came meanwhile is told of afterwards. Answers with the whole subject."""
    asked = await read_json(request, runtime.config.api.body_limit, _snooze)
    if asked.until <= datetime.now(UTC):
        raise invalid("until", "is in the past")
    return await _snoozed(asked, asked.until, runtime, principal)


@router.post("/alerts/unsnooze", summary="End a snooze", openapi_extra=UNSNOOZE)
async def unsnooze(request: Request, runtime: Context, principal: Operator) -> Response:
    """The next letter alerts, if any came meanwhile. Answers with the whole subject."""
    asked = await read_json(request, runtime.config.api.body_limit, _unsnooze)
    return await _snoozed(asked, None, runtime, principal)


@router.post("/alerts/test", status_code=202, summary="Send a test through every channel")
async def test(runtime: Context, principal: Operator) -> Response:
    """The consumer sends it, as the channels are its own. What became of it: `GET /alerts/{id}`."""
    async with runtime.database() as db:
        alert_id = await alerts.ask_for_test(db, by=principal.name)
    return JsonResponse({"id": alert_id}, 202, {"Location": f"/alerts/{alert_id}"})


async def _snoozed(
    asked: Unsnooze, until: datetime | None, runtime: Runtime, principal: Principal
) -> Response:
    try:
        async with runtime.database() as db:
            whole = await alert_snoozes.snooze(db, asked.subject, until, by=principal.name, note=asked.note)
    except AmbiguousGroupError as error:
        raise Problem(409, "ambiguous-group", str(error)) from error
    except (UnknownSubjectError, UnknownGroupError) as error:
        raise Problem(404, "unknown-subject", str(error), [FieldError("subject", str(error))]) from error
    return JsonResponse({"subject": whole, "snoozed_until": shown_time(until)})


def _snooze(body: Any) -> Snooze:
    return as_model(Snooze, body)


def _unsnooze(body: Any) -> Unsnooze:
    return as_model(Unsnooze, body)
