"""Where a list goes on that has the newest first: after a time of making and an id."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from storage.group_list import CursorError
from storage.times import in_utc


def cursor_of(created_at: datetime, id_: str) -> str:
    """After this one."""
    return f"{in_utc(created_at).isoformat()}~{id_}"


def position(cursor: str, what: str) -> tuple[datetime, UUID]:
    """Undoes `cursor_of`.

    Raises:
        CursorError: it is none of a list of `what`.
    """
    key, _, id_ = cursor.partition("~")
    try:
        at = datetime.fromisoformat(key)
        if at.tzinfo is None:
            raise ValueError(key)
        return at.astimezone(UTC), UUID(id_)
    except (ValueError, OverflowError) as error:
        raise CursorError(f"{cursor[:60]!r} is no cursor of a list of {what}") from error
