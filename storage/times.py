"""Times as every surface shows and takes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_AGO = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([smhdw])(?:\s+ago)?")
MOST_SPAN_S = 3_660 * 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
TIME_FORMS = "ISO 8601, in UTC unless it says another zone, or an age such as 90s, 15m, 2h, 3d, 1w"


def in_utc(at: datetime) -> datetime:
    """The same moment in UTC.

    asyncpg stores the first and the last moment of `datetime` as Postgres's infinities, and reads these
    without a zone (0.32).
    """
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def shown_time(at: datetime | None) -> str | None:
    """RFC 3339 in UTC, such as `2026-01-31T12:00:00.250000+00:00`."""
    return None if at is None else in_utc(at).isoformat()


def microseconds(at: datetime) -> int:
    """Since 1970, exactly."""
    return (in_utc(at) - _EPOCH) // _MICROSECOND


def from_microseconds(count: int) -> datetime:
    """Undoes `microseconds`.

    Raises:
        OverflowError: before the year 1 or after 9999.
    """
    return _EPOCH + count * _MICROSECOND


def read_time(text: str, now: datetime) -> datetime:
    """A point in time: `TIME_FORMS`. An age counts back from `now`, and may be followed by `ago`.

    Raises:
        ValueError: it is neither, or out of range.
    """
    text = text.strip()
    if match := _AGO.fullmatch(text):
        try:
            return now - timedelta(**{_UNITS[match[2]]: float(match[1])})
        except OverflowError:
            raise ValueError(f"{text!r} is too long ago") from None
    try:
        at = datetime.fromisoformat(text)
        return in_utc(at)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a time: {TIME_FORMS}") from None


def read_span(text: str) -> timedelta:
    """A length of time, such as `90s`, `15m`, `2h`, `3d`, `1w`; above 0, at most 10 years.

    Raises:
        ValueError: it is none.
    """
    match = _AGO.fullmatch(text.strip())
    seconds = float(match[1]) * timedelta(**{_UNITS[match[2]]: 1}).total_seconds() if match else 0.0
    if not 0 < seconds <= MOST_SPAN_S:
        raise ValueError(f"{text!r} is not a length of time such as 90s, 15m, 2h, 3d, 1w")
    return timedelta(seconds=seconds)
