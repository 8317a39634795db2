"""A plan in words, and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

from topology.plan.changes import Change, Difference, Kind, Plan


def lines(plan: Plan) -> Iterator[str]:
    """A line for each change, and one below it for each argument."""
    for change in plan.changes:
        yield from change_lines(change)
    for words in plan.not_seen:
        yield f"NOT SEEN {words}"


def change_lines(change: Change) -> Iterator[str]:
    note = f": {change.note}" if change.note else ""
    yield f"{_sign(change.kind)} {change.entity} {change.name}{note}"
    for difference in change.differences:
        yield f"    {difference_text(difference)}"


def difference_text(difference: Difference) -> str:
    """`x-message-ttl: 30,000 -> 60,000`: have, then want."""
    return f"{difference.argument}: {_shown(difference.have)} -> {_shown(difference.want)}"


def as_json(plan: Plan) -> dict[str, Any]:
    """`kind`, `entity`, `name`, `note` and `differences` of each change; `exit_code`; `not_seen`."""
    return {
        "exit_code": plan.exit_code,
        "changes": [
            {
                "kind": change.kind,
                "entity": change.entity,
                "name": change.name,
                "note": change.note,
                "differences": [_difference(each) for each in change.differences],
            }
            for change in plan.changes
        ],
        "not_seen": list(plan.not_seen),
    }


def summary(plan: Plan) -> str:
    """One line: how many of what."""
    counts = Counter(change.kind for change in plan.changes)
    return ", ".join(f"{counts[kind]} {kind}" for kind in get_args(Kind) if counts[kind]) or "nothing to do"


def _sign(kind: Kind) -> str:
    return kind.upper() if kind in ("conflict", "warning") else kind


def _difference(difference: Difference) -> dict[str, object]:
    return {"argument": difference.argument, "have": difference.have, "want": difference.want}


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else str(value)
