"""Snoozing: alerts of a subject are written down and not sent, for a time; who did it is on record."""

from __future__ import annotations

from datetime import datetime

from storage.errors import StorageError, translate
from storage.group_list import find
from storage.pool import AnyConnection, Pool, lend
from storage.schema import needs_this_release
from storage.text import safe_text

MAX_NAME = 200
MAX_NOTE = 4_000
_KNOWN = "SELECT subject FROM redrive.alert_subjects WHERE subject = $1 AND fingerprint IS NULL"
_OTHERS = "SELECT subject FROM redrive.alert_subjects WHERE fingerprint IS NULL ORDER BY subject"
_SNOOZE = """
INSERT INTO redrive.alert_subjects AS s (subject, fingerprint, snoozed_until) VALUES ($1, $2, $3)
ON CONFLICT (subject) DO UPDATE SET snoozed_until = excluded.snoozed_until
"""
_WRITE = "INSERT INTO redrive.alert_snoozes (subject, by, until, note) VALUES ($1, $2, $3, $4)"
# What waits for another try would be sent under the snooze.
_LOCK_UNSENT = """
SELECT id FROM redrive.alerts WHERE state = 'sending' AND coalesce(subject, fingerprint) = $1
ORDER BY id FOR UPDATE
"""
_HOLD_BACK = """
UPDATE redrive.alert_deliveries SET state = 'snoozed' WHERE alert_id = ANY($1::uuid[]) AND state = 'pending'
"""
_HELD_BACK = "UPDATE redrive.alerts SET state = 'snoozed' WHERE id = ANY($1::uuid[])"
_MISSED = "UPDATE redrive.alert_subjects SET missed = true WHERE subject = $1"


class UnknownSubjectError(StorageError):
    """Neither a group nor anything else that has alerted."""


async def snooze(
    db: Pool | AnyConnection, subject: str, until: datetime | None, *, by: str, note: str | None = None
) -> str:
    """Send no alert of a group or another subject before `until`; None ends a snooze. The whole subject.

    Args:
        subject: the start of a fingerprint, or another subject in full.

    Raises:
        UnknownGroupError, AmbiguousGroupError: as `group_list.find`.
        UnknownSubjectError: it has a colon or a dash, and has never alerted.
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("snooze alerts"), needs_this_release("snooze alerts"):
        async with lend(db) as connection, connection.transaction():
            whole, fingerprint = await _find(connection, subject)
            await connection.execute(_SNOOZE, whole, fingerprint, until)
            words = None if note is None else safe_text(note, MAX_NOTE)
            await connection.execute(_WRITE, whole, safe_text(by, MAX_NAME), until, words)
            if until is not None:
                await _hold_back(connection, whole)
    return whole


async def _hold_back(connection: AnyConnection, subject: str) -> None:
    unsent = [row["id"] for row in await connection.fetch(_LOCK_UNSENT, subject)]
    if unsent:
        await connection.execute(_HOLD_BACK, unsent)
        await connection.execute(_HELD_BACK, unsent)
        await connection.execute(_MISSED, subject)


async def _find(connection: AnyConnection, subject: str) -> tuple[str, str | None]:
    if await connection.fetchval(_KNOWN, subject) is not None:
        return subject, None
    if ":" in subject or "_" in subject:
        others = [row["subject"] for row in await connection.fetch(_OTHERS)]
        raise UnknownSubjectError(
            f"{subject!r} has never alerted; beside groups only: {', '.join(others) or '-'}"
        )
    fingerprint = await find(connection, subject)
    return fingerprint, fingerprint
