"""Jobs, found by what is known of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import AfterValidator, StringConstraints

from api.auth import Context, Reader
from api.filtering import Text, TimeText
from api.json_text import JsonResponse
from storage import job_pages
from storage.job_pages import MAX_PAGE, JobCursor, JobFilter, JobPage
from storage.times import TIME_FORMS, read_time

State = Literal["PENDING", "QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "DEAD", "CANCELLED"]
Time = Annotated[TimeText, Query(description=f"time of acceptance: {TIME_FORMS}")]


def _is_a_cursor(text: str) -> str:
    JobCursor.parse(text)
    return text


CursorText = Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(_is_a_cursor)]

router = APIRouter(tags=["jobs"], dependencies=[Reader])


@router.get("/jobs", summary="Jobs, the last accepted first")
async def page(
    runtime: Context,
    job_type: Annotated[Text | None, Query(alias="type", description="job type")] = None,
    queue: Text | None = None,
    state: State | None = None,
    since: Time | None = None,
    until: Time | None = None,
    refused: Annotated[bool, Query(description="only those whose message the broker refused")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[CursorText | None, Query(description="next_cursor of the page before")] = None,
) -> Response:
    """Jobs that match all that is given; `since` <= time of acceptance < `until`.

    `next_cursor` is null on the last page. What may be long (progress, result, attempts, history) is shown
    with the job alone.
    """
    now = datetime.now(UTC)
    wanted = JobFilter(
        job_type,
        queue,
        state,
        read_time(since, now) if since else None,
        read_time(until, now) if until else None,
        refused,
    )
    after = None if cursor is None else JobCursor.parse(cursor)
    async with runtime.database() as db:
        found = await job_pages.page(db, wanted, limit=limit, after=after)
    return await asyncio.to_thread(_page, found)


def _page(found: JobPage) -> Response:
    cursor = None if found.next is None else str(found.next)
    return JsonResponse({"jobs": [job.as_json() for job in found.jobs], "next_cursor": cursor})
