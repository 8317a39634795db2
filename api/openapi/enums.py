"""Sets of values that occur in many places have one name in the document."""

from __future__ import annotations

from typing import Any, get_args

from api.filtering import State as LetterState
from api.openapi.job_models import Final, Outcome
from api.openapi.job_models import State as JobState
from api.openapi.replays import ItemOutcome, ItemState, PlanState
from api.openapi.schema import ref
from storage.alert_list import AlertState
from storage.alert_rules import AlertKind
from storage.callback_list import CallbackState
from storage.group_list import GroupState

NAMED: dict[str, Any] = {
    "JobState": JobState,
    "FinalJobState": Final,
    "AttemptOutcome": Outcome,
    "LetterState": LetterState,
    "GroupState": GroupState,
    "ReplayState": PlanState,
    "ReplayItemState": ItemState,
    "ReplayOutcome": ItemOutcome,
    "AlertKind": AlertKind,
    "AlertState": AlertState,
    "CallbackState": CallbackState,
}
_NAMES = {get_args(values): name for name, values in NAMED.items()}


def components() -> dict[str, Any]:
    """Their schemas."""
    return {name: {"type": "string", "enum": list(values)} for values, name in _NAMES.items()}


def with_names(value: Any) -> Any:
    """The same, with a reference in place of each of these sets; what stands beside it stays."""
    if isinstance(value, list):
        return [with_names(each) for each in value]
    if not isinstance(value, dict):
        return value
    if isinstance(found := value.get("enum"), list) and (name := _NAMES.get(tuple(found))):
        return ref(name) | {key: value[key] for key in value if key not in ("enum", "type", "title")}
    return {key: with_names(each) for key, each in value.items()}
