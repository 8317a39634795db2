"""When a job may run, until when, before which others: what a submission may ask for. Pure checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from api.problems import FieldError
from storage.job_options import JobOptions
from topology.delivery_fields import LONGEST_DELAY_S
from topology.spec import WorkQueue

NAMES = ("delay_s", "not_before", "expires", "priority")
# RFC 3339, with a zone: a time without one means another moment to each reader. Nanoseconds, as Go and Java
# write them, are cut off.
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,30})?([Zz]|[+-]\d\d:\d\d)")
# Of a quorum queue: from 5 on a message goes before the others, from RabbitMQ 4.0.
QUORUM_PRIORITY = 9

OPTIONS_SCHEMA: dict[str, Any] = {
    "delay_s": {
        "type": "number",
        "minimum": 0,
        "maximum": LONGEST_DELAY_S,
        "description": "seconds before it may run",
    },
    "not_before": {"type": "string", "format": "date-time", "description": "instead of delay_s"},
    "expires": {
        "type": "string",
        "format": "date-time",
        "description": "it is dead-lettered as expired if it has not begun by then",
    },
    "priority": {
        "type": "integer",
        "minimum": 0,
        "maximum": 255,
        "description": "0 to 9 in a quorum queue, from 5 on before others (RabbitMQ 4);"
        " in a classic one up to its max_priority",
    },
}


def read_options(
    body: Mapping[str, Any], queue: WorkQueue | None, errors: list[FieldError], now: datetime
) -> JobOptions | None:
    """The options in a submission, or None where it has none; what is wrong with them is added to `errors`.

    A time that is over is taken: a request that is sent again must get the answer that it got.
    """
    given = {name: body[name] for name in NAMES if name in body}
    if not given:
        return None
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name == "delay_s":
            fault = _delay(value)
        elif name == "priority":
            fault = _priority(value, queue)
        else:
            value, fault = _time(value, now)
        if fault:
            errors.append(FieldError(name, fault))
        found[name] = value
    if "delay_s" in given and "not_before" in given:
        errors.append(FieldError("not_before", "is given beside delay_s: one of the two"))
    if errors:
        return None
    if found.get("expires") and found.get("not_before") and found["expires"] <= found["not_before"]:
        errors.append(FieldError("expires", "must be after not_before"))
    return JobOptions(**found)


def _delay(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number of seconds"
    if not 0 <= value <= LONGEST_DELAY_S:
        return f"must be 0 to {LONGEST_DELAY_S:.0f} (366 days)"
    return None


def _priority(value: Any, queue: WorkQueue | None) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return "must be an integer"
    if queue is None:
        return None
    highest = QUORUM_PRIORITY if queue.type == "quorum" else queue.max_priority
    if highest is None:
        return f"is not taken: the queue {queue.name!r} has no priorities"
    return None if 0 <= value <= highest else f"must be 0 to {highest} in the queue {queue.name!r}"


def _time(value: Any, now: datetime) -> tuple[datetime | None, str | None]:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return None, "must be a time with a zone (RFC 3339), such as 2026-01-31T12:00:00Z"
    try:
        at = datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        return None, "is no time that exists"
    if at > now + timedelta(seconds=LONGEST_DELAY_S):
        return None, "must be within 366 days"
    return at, None
