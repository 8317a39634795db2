"""Who changed what, and from where."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from api.auth import Context, Requires
from api.filtering import Text, TimeText
from api.paging import page_answer
from storage import audit
from storage.audit import MAX_PAGE, AuditFilter
from storage.times import TIME_FORMS, read_time

router = APIRouter(tags=["audit"], dependencies=[Depends(Requires("operate"))])
Time = Annotated[TimeText, Query(description=TIME_FORMS)]


@router.get("/audit", summary="Who changed what, the newest first")
async def page(
    runtime: Context,
    by: Annotated[Text | None, Query(description="caller, or user@host of a command")] = None,
    operation: Annotated[Text | None, Query(description="it begins so, such as POST /replays")] = None,
    target: Annotated[Text | None, Query(description="id of a job, letter, replay, group")] = None,
    since: Time | None = None,
    until: Time | None = None,
    submissions: Annotated[bool, Query(description="accepted jobs too")] = True,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[int | None, Query(ge=1, lt=2**63, description="next_cursor of the page before")] = None,
) -> Response:
    """Each call and command that changes something, from where, and by which key.

    `status` is that of the answer, or a command's exit code; null while it runs, and for good when its
    process ended before it answered. `next_cursor` is null on the last page.
    """
    now = datetime.now(UTC)
    wanted = AuditFilter(
        by, operation, target, read_time(since, now) if since else None,
        read_time(until, now) if until else None, submissions,
    )  # fmt: skip
    async with runtime.database() as db:
        found = await audit.newest(db, wanted, limit=limit + 1, before=cursor)
    return page_answer("entries", found, limit, lambda entry: entry.id)
