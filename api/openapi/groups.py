"""Groups: what is shown of them, an example of each answer, and the operations."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.openapi import story
from api.openapi.letter_models import GroupOfLetter, HourFigure, Letter, LetterState
from api.openapi.letters import GROUP, LETTER
from api.openapi.operation import Answer, Operation, one
from api.openapi.schema import Count, Fingerprint, NextCursor, Shown, Time


class Group(GroupOfLetter):
    """Letters that died alike. `letters` is how many ever came, `counts` are of those on record."""

    state: Literal["open", "resolved", "ignored"]
    decided_by: str | None
    decided_at: Time | None
    why: str | None
    ignored_until: Time | None = Field(description="null while it is ignored: for good")
    regressed_at: Time | None = Field(description="when a letter came to it although it was resolved")
    regressions: Count
    rule: int = Field(description="of the fingerprint")
    successors: list[Fingerprint] = Field(description="groups that its letters were moved to")
    counts: dict[LetterState, Count]


class GroupList(Shown):
    groups: list[Group]
    next_cursor: NextCursor


class GroupNote(Shown):
    id: int
    at: Time
    by: str
    action: Literal["note", "resolve", "ignore", "reopen", "regression"]
    text: str


class GroupDetails(Group):
    """A group with its notes, its letters by hour, and one of them."""

    dead_letter_queues: dict[str, Count]
    hours: list[HourFigure] = Field(description="hours in which letters came")
    notes: list[GroupNote]
    example: Letter | None


_COUNTS = {"open": 1, "replaying": 0, "replayed": 0, "discarded": 0, "quarantined": 0}
_LISTED: dict[str, Any] = GROUP | {
    "state": "open", "decided_by": None, "decided_at": None, "why": None, "ignored_until": None,
    "regressed_at": None, "regressions": 0, "rule": 1, "successors": [], "counts": _COUNTS,
}  # fmt: skip
_WHOLE = _LISTED | {
    "dead_letter_queues": {"payments.dlq": 1}, "hours": [{"hour": story.at("12:00:00"), "letters": 1}],
    "notes": [], "example": LETTER,
}  # fmt: skip
_AT = story.at("12:05:00.337120")


def _after(action: str, text: str, state: str = "open", **details: Any) -> dict[str, Any]:
    note = {"id": 1, "at": _AT, "by": story.OPERATOR, "action": action, "text": text}
    decided = {"decided_by": story.OPERATOR, "decided_at": _AT, "why": text} if action != "note" else {}
    return _WHOLE | {"state": state, "notes": [note]} | decided | details


def _decided(id_: str, description: str, example: dict[str, Any]) -> Operation:
    return Operation(id_, one(GroupDetails, example, description), _ONE)


_ONE = ("unknown-group", "ambiguous-group", "moved-group")
_NOTED: tuple[Answer, ...] = one(
    GroupDetails, _after("note", "the provider was down from 9 to 10"), "The group with its notes.", 201
)
OPERATIONS = {
    "GET /groups": Operation(
        "list_groups", one(GroupList, {"groups": [_LISTED], "next_cursor": None}, "A page of groups.")
    ),
    "GET /groups/{fingerprint}": _decided("get_group", "The group.", _WHOLE),
    "POST /groups/{fingerprint}/notes": Operation("add_group_note", _NOTED, _ONE),
    "POST /groups/{fingerprint}/resolve": _decided(
        "resolve_group", "The resolved group.", _after("resolve", "fixed in 1.8.2", "resolved")
    ),
    "POST /groups/{fingerprint}/ignore": _decided(
        "ignore_group",
        "The ignored group.",
        _after("ignore", "the old client, gone next week", "ignored", ignored_until=story.IN_A_WEEK),
    ),
    "POST /groups/{fingerprint}/reopen": _decided(
        "reopen_group", "The group, open again.", _after("reopen", "it was not the provider")
    ),
}
