"""Times as every surface shows them."""

from __future__ import annotations

from datetime import UTC, datetime


def shown_time(at: datetime | None) -> str | None:
    """RFC 3339 in UTC, such as `2026-01-31T12:00:00.250000+00:00`."""
    return None if at is None else at.astimezone(UTC).isoformat()
