"""The audit: what is shown of it, an example, and the operation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from api.openapi import story
from api.openapi.operation import Operation, one
from api.openapi.schema import Shown, Time


class AuditEntry(Shown):
    """A call or a command that changes something: on record before it begins."""

    id: int
    at: Time
    by: str = Field(description="the caller, or user@host of a command")
    key_id: str | None = Field(description="which of the caller's keys")
    came_from: str | None = Field(description="address of the peer, or the host of a command")
    operation: str = Field(description="such as `POST /replays`, or a command")
    targets: list[str] = Field(description="ids of jobs, letters, replays, groups: the first 1,000")
    details: dict[str, Any] | None = Field(description="what was asked, without what may be a secret or long")
    status: int | None = Field(
        description="of the answer, or a command's exit code; null while it runs, and for good when its "
        "process ended before it answered"
    )
    ended_at: Time | None


class AuditList(Shown):
    entries: list[AuditEntry]
    next_cursor: Annotated[int | None, Field(description="to be given as `cursor`; null on the last page")]


_ENTRY = {
    "id": 41, "at": story.REPLAYED, "by": story.OPERATOR, "key_id": story.OPERATOR_KEY,
    "came_from": story.CAME_FROM, "operation": "POST /jobs/{job_id}/retry", "targets": [story.JOB],
    "details": {"note": story.WHY}, "status": 202, "ended_at": story.at("12:30:00.131874"),
}  # fmt: skip
OPERATIONS = {
    "GET /audit": Operation(
        "list_audit", one(AuditList, {"entries": [_ENTRY], "next_cursor": None}, "A page of the audit.")
    ),
}
