"""Replays: what is shown of them, an example of each answer, and the operations."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.openapi import story
from api.openapi.operation import Operation, one
from api.openapi.schema import Count, LeftOut, NextCursor, Seconds, Shown, Time, Uuid

ItemState = Literal["staged", "publishing", "published", "failed", "unknown", "cancelled"]
ItemOutcome = Literal["succeeded", "died_again", "cancelled", "consumed", "unknown"]
PlanState = Literal["running", "paused", "done", "cancelled"]


class ReplayEvent(Shown):
    """Who paused, resumed or cancelled it, or that its canary or its breaker paused it."""

    action: Literal["pause", "resume", "cancel", "canary", "breaker"]
    by: str
    at: Time
    why: str | None


class ReplayProgress(Shown):
    """How far a replay is, as the stream tells it."""

    id: Uuid
    state: PlanState
    requested_by: str
    created_at: Time
    finished_at: Time | None
    letters: Count
    states: dict[ItemState, Count] = Field(description="how many letters are in which state")
    outcomes: dict[ItemOutcome, Count] = Field(description="how many letters had which outcome")
    rate_now: Seconds = Field(description="letters per second, over the last ten seconds")
    eta_s: Seconds | None = Field(description="seconds until all are sent; null while nobody can tell")


class ListedReplay(ReplayProgress):
    """A plan by which letters are sent again."""

    note: str | None
    rate: float | None = Field(description="letters per second at most; null: no limit")
    canary: int | None = Field(description="so many first, the rest once these went well")
    breaker: int | None = Field(description="paused once so many of a group died again as before")
    chosen_by: dict[str, Any] | None = Field(description="the filter; null where letters were named")
    expired: dict[str, Count] = Field(
        description="letters that retention has taken, by what had become of them"
    )


class Replay(ListedReplay):
    """`events` of a single plan only: a plan that was made just now has none."""

    events: list[ReplayEvent] | LeftOut = None


class ReplayItem(Shown):
    """One letter of a plan."""

    position: int = Field(ge=1, description="in the order in which they are sent")
    letter_id: int
    job_id: str | None
    target: str = Field(description="the queue that it is sent to")
    state: ItemState
    outcome: ItemOutcome | None = Field(description="null until it is known")
    next_letter_id: int | None = Field(description="the letter as which it came back")
    detail: str | None
    published_at: Time | None
    decided_at: Time | None


class ReplayDetails(Replay):
    """A plan with a page of its letters."""

    items: list[ReplayItem]
    next: int | None = Field(description="to be given as `after`; null on the last page")


class ReplayPortion(Shown):
    """Letters that go to one queue, of one task, and died for one reason."""

    target: str
    task: str | None
    reason: str
    letters: Count


class ReplayDryRun(Shown):
    """What would be sent."""

    letters: Count = Field(description="that can be replayed")
    of: list[ReplayPortion]
    left_out: dict[str, Count] = Field(description="letters that cannot be, by why")
    left_out_letters: dict[str, list[int]] = Field(description="of each, the 20 with the lowest ids")
    to_send: Count
    refused: bool = Field(description="a named letter cannot be replayed, so the plan would be refused")


class ReplayList(Shown):
    replays: list[ListedReplay]
    next_cursor: NextCursor


PROGRESS: dict[str, Any] = {
    "id": story.REPLAY, "state": "running", "requested_by": story.OPERATOR, "created_at": story.REPLAYED,
    "finished_at": None, "letters": 1, "states": {"published": 1}, "outcomes": {}, "rate_now": 1.0,
    "eta_s": 0.0,
}  # fmt: skip
LISTED: dict[str, Any] = PROGRESS | {
    "note": story.WHY, "rate": None, "canary": None, "breaker": 5, "chosen_by": None, "expired": {},
}  # fmt: skip
PLAN: dict[str, Any] = LISTED | {"states": {"staged": 1}, "rate_now": 0.0, "eta_s": None, "events": []}
_ITEM = {
    "position": 1, "letter_id": story.LETTER, "job_id": story.JOB, "target": story.QUEUE, "state": "staged",
    "outcome": None, "next_letter_id": None, "detail": None, "published_at": None, "decided_at": None,
}  # fmt: skip
_CREATED = PLAN | {"items": [_ITEM], "next": None}
_DONE = _CREATED | {
    "state": "done", "finished_at": story.DECIDED, "states": {"published": 1}, "outcomes": {"succeeded": 1},
    "items": [_ITEM | {"state": "published", "outcome": "succeeded", "published_at": story.SENT,
                       "decided_at": story.DECIDED}],
}  # fmt: skip
_DRY = {
    "letters": 1, "of": [{"target": story.QUEUE, "task": story.TASK, "reason": "exception", "letters": 1}],
    "left_out": {}, "left_out_letters": {}, "to_send": 1, "refused": False,
}  # fmt: skip


def _after(action: str, state: str) -> dict[str, Any]:
    event = {"action": action, "by": story.OPERATOR, "at": story.at("12:30:00.402117"), "why": story.SLOW}
    ended = {"finished_at": event["at"], "states": {"cancelled": 1}} if state == "cancelled" else {}
    return PLAN | {"state": state, "events": [event]} | ended


_CONTROL = ("unknown-replay", "replay-state", "too-many-at-once")
OPERATIONS = {
    "POST /replays": Operation(
        "create_replay",
        (
            *one(ReplayDryRun, _DRY, "With `dry_run`: what would be sent; nothing was done."),
            *one(ReplayDetails, _CREATED, "The plan, which the dead-letter consumer carries out.", 202,
                 ("Location",)),
        ),
        ("replay-outstanding", "not-replayable", "unknown-letters", "too-many-at-once"),
    ),
    "GET /replays": Operation(
        "list_replays", one(ReplayList, {"replays": [LISTED], "next_cursor": None}, "A page of replays.")
    ),
    "GET /replays/{replay_id}": Operation(
        "get_replay", one(ReplayDetails, _DONE, "The replay and a page of its letters."), ("unknown-replay",)
    ),
    "POST /replays/{replay_id}/pause": Operation(
        "pause_replay", one(Replay, _after("pause", "paused"), "The paused replay."), _CONTROL
    ),
    "POST /replays/{replay_id}/resume": Operation(
        "resume_replay", one(Replay, _after("resume", "running"), "The replay, which goes on."), _CONTROL
    ),
    "POST /replays/{replay_id}/cancel": Operation(
        "cancel_replay", one(Replay, _after("cancel", "cancelled"), "The cancelled replay."), _CONTROL
    ),
}  # fmt: skip
