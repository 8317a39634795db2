"""Callbacks: what is shown of them, an example of each answer, and the operations."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.openapi import story
from api.openapi.job_models import CallbackAnswer, Final, Generation, JobId
from api.openapi.operation import Operation, one
from api.openapi.schema import Count, NextCursor, Shown, Time, Uuid
from storage.callback_list import CallbackState


class CallbackRetry(Shown):
    """Who had it sent again."""

    at: Time
    by: str
    note: str


class Callback(Shown):
    """One end of a job, and whether its receiver was told."""

    id: Uuid
    job_id: JobId
    generation: Generation
    attempt: int
    job_state: Final
    url: str = Field(description="without its path and query")
    state: CallbackState = Field(description="`dead`: it is not sent any more")
    tries: Count = Field(description="since it was last sent by hand")
    created_at: Time
    next_try_at: Time | None
    ended_at: Time | None
    why_dead: str | None
    answers: list[CallbackAnswer] = Field(max_length=5, description="to its last tries")
    retries: list[CallbackRetry]


class CallbackList(Shown):
    callbacks: list[Callback]
    next_cursor: NextCursor


_AT = story.at("12:30:01.215310")
_DELIVERED: dict[str, Any] = {
    "id": story.CALLBACK, "job_id": story.JOB, "generation": 2, "attempt": 1, "job_state": "SUCCEEDED",
    "url": story.SHOWN_URL, "state": "delivered", "tries": 1, "created_at": story.SUCCEEDED,
    "next_try_at": None, "ended_at": _AT, "why_dead": None, "answers": [{"at": _AT, "status": 204}],
    "retries": [],
}  # fmt: skip
_AGAIN = _DELIVERED | {
    "state": "pending", "tries": 0, "ended_at": None, "next_try_at": story.at("12:40:00.018551"),
    "retries": [{"at": story.at("12:40:00.018551"), "by": story.OPERATOR, "note": "the receiver is back"}],
}  # fmt: skip
OPERATIONS = {
    "GET /callbacks": Operation(
        "list_callbacks",
        one(CallbackList, {"callbacks": [_DELIVERED], "next_cursor": None}, "A page of callbacks."),
    ),
    "GET /callbacks/{callback_id}": Operation(
        "get_callback", one(Callback, _DELIVERED, "The callback."), ("unknown-callback",)
    ),
    "POST /callbacks/{callback_id}/retry": Operation(
        "retry_callback",
        one(Callback, _AGAIN, "The callback, which is sent again now.", 202, ("Location",)),
        ("unknown-callback",),
    ),
}
