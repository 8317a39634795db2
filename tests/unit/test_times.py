"""Times are shown in UTC, whatever zone they came in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from storage.times import shown_time


def test_times_are_shown_in_utc() -> None:
    at = datetime(2025, 3, 1, 12, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=2)))
    assert shown_time(at) == "2025-03-01T10:00:00.250000+00:00"
    assert shown_time(datetime(2025, 3, 1, tzinfo=UTC)) == "2025-03-01T00:00:00+00:00"
    assert shown_time(None) is None
