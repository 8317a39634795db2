"""What operators decide about groups: each decision is kept with who, when and why."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from storage.errors import StorageError, translate
from storage.group_list import UnknownGroupError, find
from storage.pool import AnyConnection, Pool, lend
from storage.schema import needs_this_release
from storage.text import safe_text

Decision = Literal["resolve", "ignore", "reopen"]
STATES = {"resolve": "resolved", "ignore": "ignored", "reopen": "open"}
MAX_NOTE, MAX_NAME = 4_000, 200

# The lock that intake takes too: a letter comes either before the decision or after it.
_LOCK = "SELECT true FROM redrive.groups WHERE fingerprint = $1 FOR NO KEY UPDATE"
_GONE_TO = """
SELECT s.successors FROM redrive.groups g JOIN redrive.group_states s USING (fingerprint)
WHERE g.fingerprint = $1 AND g.letters = 0 AND s.successors <> '{}'
"""
_DECIDE = """
INSERT INTO redrive.group_states AS s (fingerprint, state, decided_by, decided_at, why, ignored_until)
VALUES ($1, $2, $3, now(), $4, $5)
ON CONFLICT (fingerprint) DO UPDATE SET state = excluded.state, decided_by = excluded.decided_by,
    decided_at = excluded.decided_at, why = excluded.why, ignored_until = excluded.ignored_until
"""
_NOTE = "INSERT INTO redrive.group_notes (fingerprint, by, action, text) VALUES ($1, $2, $3, $4)"


class MovedGroupError(StorageError):
    """Its letters were regrouped: what is decided about it would be about none."""


async def note(db: Pool | AnyConnection, prefix: str, *, by: str, text: str) -> str:
    """Add a note; the group's fingerprint.

    Raises:
        UnknownGroupError, AmbiguousGroupError: as `group_list.find`.
        MovedGroupError: see there.
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("add a note"), needs_this_release("add a note"):
        async with lend(db) as connection, connection.transaction():
            fingerprint = await _locked(connection, prefix)
            await _write(connection, fingerprint, by, "note", text)
    return fingerprint


async def decide(
    db: Pool | AnyConnection, prefix: str, decision: Decision, *, by: str, why: str,
    until: datetime | None = None,
) -> str:  # fmt: skip
    """Resolve, ignore (until a time, or for good) or reopen a group; its fingerprint.

    It says nothing about the letters: these stay undecided until they are replayed or discarded.

    Raises: as `note`.
    """
    assert until is None or decision == "ignore"
    with translate(f"{decision} a group"), needs_this_release(f"{decision} a group"):
        async with lend(db) as connection, connection.transaction():
            fingerprint = await _locked(connection, prefix)
            text = safe_text(why, MAX_NOTE)
            await connection.execute(
                _DECIDE, fingerprint, STATES[decision], safe_text(by, MAX_NAME), text, until
            )
            await _write(connection, fingerprint, by, decision, why)
    return fingerprint


async def _locked(connection: AnyConnection, prefix: str) -> str:
    fingerprint = await find(connection, prefix)
    if not await connection.fetchval(_LOCK, fingerprint):
        raise UnknownGroupError(f"group {fingerprint} was deleted just now")
    if gone_to := await connection.fetchval(_GONE_TO, fingerprint):
        raise MovedGroupError(f"the letters of group {fingerprint} are in {', '.join(gone_to[:20])} now")
    return fingerprint


async def _write(connection: AnyConnection, fingerprint: str, by: str, action: str, text: str) -> None:
    await connection.execute(_NOTE, fingerprint, safe_text(by, MAX_NAME), action, safe_text(text, MAX_NOTE))
