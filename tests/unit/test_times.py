"""Times are shown in UTC, whatever zone they came in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from storage.times import from_microseconds, microseconds, read_time, shown_time


def test_times_are_shown_in_utc() -> None:
    at = datetime(2025, 3, 1, 12, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=2)))
    assert shown_time(at) == "2025-03-01T10:00:00.250000+00:00"
    assert shown_time(datetime(2025, 3, 1, tzinfo=UTC)) == "2025-03-01T00:00:00+00:00"
    assert shown_time(None) is None


def test_the_first_and_the_last_moment_are_shown_as_the_driver_reads_them() -> None:
    first = datetime(1, 1, 1)  # noqa: DTZ001 - as it is read
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
    assert shown_time(first) == "0001-01-01T00:00:00+00:00"
    assert shown_time(last) == "9999-12-31T23:59:59.999999+00:00"
    for at in (first, last):
        assert from_microseconds(microseconds(at)) == at.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2h", datetime(2026, 1, 1, 10, tzinfo=UTC)),
        (" 1.5h ago ", datetime(2026, 1, 1, 10, 30, tzinfo=UTC)),
        ("90s", datetime(2026, 1, 1, 11, 58, 30, tzinfo=UTC)),
        ("1w", datetime(2025, 12, 25, 12, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_a_time_is_a_date_or_an_age(text: str, at: datetime) -> None:
    assert read_time(text, datetime(2026, 1, 1, 12, tzinfo=UTC)) == at


@pytest.mark.parametrize("text", ["", "soon", "2h later", "999999999w", "0001-01-01T00:00+14:00", "-2h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time|is too long ago"):
        read_time(text, datetime(2026, 1, 1, 12, tzinfo=UTC))
