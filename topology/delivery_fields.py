"""The fields of a task message, each checked alone; what is wrong is raised as `Refused`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from topology.headers import ATTEMPT, DUE, FIRST, LAST_ATTEMPT, Attempt, parse_attempt

MAX_ID_BYTES = 255
# One more must still fit the four bytes of its column.
MAX_RETRIES = 2**31 - 2
MAX_DUE_MS = 2**62
# Seconds. A wait beyond this is a mistake: the message would go round the ladder as long as the broker lives.
# It also keeps every number that is recorded within its column.
LONGEST_DELAY_S = 366 * 86_400.0
# Two machines' clocks may differ by so many seconds.
CLOCKS_S = 3_600.0
RefusalReason = Literal["undecodable", "malformed", "unknown_task", "expired"]


class Refused(Exception):
    """No job for a worker; the text names the part and the value seen."""

    def __init__(self, reason: RefusalReason, detail: str) -> None:
        super().__init__(detail)
        self.reason: RefusalReason = reason


def wrong(name: str, value: object, wanted: str) -> Refused:
    return Refused("malformed", f"{name} is {repr(value)[:80]}; it must be {wanted}")


def wrong_in_body(name: str, value: object, wanted: str) -> Refused:
    """`_wrong` for what the sender wrote into the body: a detail is logged, and bodies are not."""
    return Refused("malformed", f"{name} is of type {type(value).__name__}; it must be {wanted}")


def name_in(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise wrong(name, value, "a string")
    # NUL is not printable.
    size = len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    if not value.isprintable() or size > MAX_ID_BYTES:
        raise wrong(name, value, f"printable and of at most {MAX_ID_BYTES} bytes")
    return value


def count_in(fields: Mapping[str, Any], name: str, most: int) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise wrong(name, value, f"a whole number from 0 to {most}")
    return value


def instant_in(fields: Mapping[str, Any], name: str) -> datetime | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, datetime):  # revived by kombu's JSON
        instant = value
    else:
        if not isinstance(value, str):
            raise wrong(name, value, "an ISO 8601 time")
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            raise Refused("malformed", f"{name} is {value[:80]!r}; it must be an ISO 8601 time") from None
    try:
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except OverflowError:
        raise Refused("malformed", f"{name} is {value!r}; it is out of range") from None


def refuse_far(due_ms: int | None, eta: datetime | None, now: datetime) -> None:
    """Raises Refused for a time further away than anyone may ask for."""
    latest_s = now.timestamp() + LONGEST_DELAY_S + CLOCKS_S
    if due_ms is not None and due_ms / 1000 > latest_s:
        raise wrong(DUE, due_ms, f"at most {LONGEST_DELAY_S:g} s ahead")
    if eta is not None and eta.timestamp() > latest_s:
        raise wrong("eta", eta.isoformat(), f"at most {LONGEST_DELAY_S:g} s ahead")


def limits(value: Any) -> tuple[float | None, float | None]:
    if value is None:
        return (None, None)
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(map(_is_limit, value)):
        raise wrong("timelimit", value, "two numbers or nulls")
    return (value[0], value[1])


def _is_limit(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def attempt_in(headers: Mapping[str, Any]) -> Attempt:
    value = headers.get(ATTEMPT)
    if value is None:
        return FIRST
    if (attempt := parse_attempt(value)) is None:
        raise wrong(ATTEMPT, value, '"<generation>.<attempt>"')
    if max(attempt.generation, attempt.attempt) >= LAST_ATTEMPT:
        raise wrong(ATTEMPT, value, f"below {LAST_ATTEMPT}")
    return attempt


def text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
