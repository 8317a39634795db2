"""What was decided about a group goes with its letters when these are regrouped."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import asyncpg

from storage.groups import RULE
from storage.pool import AnyConnection
from storage.text import safe_text

MAX_NAME = 200
# From what hides least to what hides most.
_HIDES = ("open", "resolved", "ignored")
_SUCCESSORS = "SELECT successors FROM redrive.group_states WHERE fingerprint = $1"
_ADD_SUCCESSOR = """
INSERT INTO redrive.group_states AS s (fingerprint, successors) VALUES ($1, ARRAY[$2])
ON CONFLICT (fingerprint) DO UPDATE SET successors = s.successors || excluded.successors
"""
_STATES = """
SELECT fingerprint, state, decided_by, decided_at, why, ignored_until, regressed_at, regressions
FROM redrive.group_states WHERE fingerprint = ANY($1::text[])
"""
_SET = """
INSERT INTO redrive.group_states AS s
    (fingerprint, rule, state, decided_by, decided_at, why, ignored_until, regressed_at, regressions)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (fingerprint) DO UPDATE SET state = excluded.state, decided_by = excluded.decided_by,
    decided_at = excluded.decided_at, why = excluded.why, ignored_until = excluded.ignored_until,
    regressed_at = excluded.regressed_at, regressions = excluded.regressions
"""
# What was told of either is not told again. A snooze goes to a new group alone: of one that was there before
# it would hide more than somebody asked for.
_ALERTS = """
INSERT INTO redrive.alert_subjects AS t
    (subject, fingerprint, alerted_at, resolved_at, last_letter, missed, above, slice, counts, snoozed_until)
SELECT $2, $2, alerted_at, resolved_at, last_letter, missed, above, slice, counts,
       CASE WHEN $3 THEN snoozed_until END
FROM redrive.alert_subjects WHERE subject = $1
ON CONFLICT (subject) DO UPDATE SET
    alerted_at = greatest(t.alerted_at, excluded.alerted_at),
    resolved_at = CASE
        WHEN t.alerted_at IS NULL THEN excluded.resolved_at
        WHEN excluded.alerted_at IS NULL THEN t.resolved_at
        WHEN t.resolved_at IS NOT NULL AND excluded.resolved_at IS NOT NULL
            THEN greatest(t.resolved_at, excluded.resolved_at) END,
    last_letter = greatest(t.last_letter, excluded.last_letter),
    missed = t.missed OR excluded.missed, above = t.above OR excluded.above
"""
_SNOOZES = """
INSERT INTO redrive.alert_snoozes (subject, at, by, until, note)
SELECT $2, at, by, until, note FROM redrive.alert_snoozes WHERE subject = $1 AND until > now() ORDER BY id
"""
_COPY_NOTES = """
INSERT INTO redrive.group_notes (fingerprint, at, by, action, text, copied_from)
SELECT $2, at, by, action, text, id FROM redrive.group_notes WHERE fingerprint = $1 ORDER BY id
ON CONFLICT DO NOTHING
"""
_NOTE = """
INSERT INTO redrive.group_notes (fingerprint, by, action, text) SELECT $1, $2, 'note', $3
WHERE NOT EXISTS (SELECT FROM redrive.group_notes WHERE fingerprint = $1 AND text = $3)
"""
# Of those that a note names.
MOST_NAMED = 20
# Nobody is told that a group is well again because its letters are elsewhere.
_QUIET = """
UPDATE redrive.alert_subjects SET resolved_at = now(), missed = false
WHERE subject = $1 AND alerted_at IS NOT NULL AND resolved_at IS NULL
  AND NOT EXISTS (SELECT FROM redrive.dead_letters WHERE fingerprint = $1)
"""


@dataclass(frozen=True)
class Decided:
    """What is on record about a group; as it stands here: nobody has decided anything."""

    state: str = "open"
    decided_by: str | None = None
    decided_at: datetime | None = None
    why: str | None = None
    ignored_until: datetime | None = None
    regressed_at: datetime | None = None
    regressions: int = 0


def joined(own: Decided, other: Decided) -> Decided:
    """Of two groups that become one: what hides least. Of two ignored ones the time that ends first."""

    def hides(each: Decided) -> tuple[int, bool, float]:
        until = each.ignored_until
        return _HIDES.index(each.state), until is None, until.timestamp() if until else 0.0

    return min(own, other, key=hides)


async def of(connection: AnyConnection, old: str) -> list[str]:
    """The groups to which letters of `old` went."""
    return list(await connection.fetchval(_SUCCESSORS, old) or ())


async def inherit(connection: AnyConnection, old: str, heir: str, *, is_new: bool, by: str) -> None:
    """Once for each heir, in the transaction that gives it the first letters; both groups are locked.

    What is decided about the heir afterwards holds.
    """
    if heir in await of(connection, old):
        return
    await connection.execute(_ADD_SUCCESSOR, old, heir)
    rows = {row["fingerprint"]: _decided(row) for row in await connection.fetch(_STATES, [old, heir])}
    theirs = rows.get(old, Decided())
    state = theirs if is_new else joined(rows.get(heir, Decided()), theirs)
    await connection.execute(_SET, heir, RULE if is_new else 1, *vars(state).values())
    await connection.execute(_ALERTS, old, heir, is_new)
    if is_new:
        await connection.execute(_SNOOZES, old, heir)
    await connection.execute(_COPY_NOTES, old, heir)
    await _note(connection, heir, by, f"letters of group {old} came here")


async def leave(connection: AnyConnection, old: str, heirs: list[str], *, by: str) -> None:
    """In the transaction that moves the last letters."""
    more = f" and {len(heirs) - MOST_NAMED} more" if len(heirs) > MOST_NAMED else ""
    await _note(connection, old, by, f"letters went to {', '.join(heirs[:MOST_NAMED])}{more}")
    await connection.execute(_QUIET, old)


def _decided(row: asyncpg.Record) -> Decided:
    return Decided(**{name: value for name, value in row.items() if name != "fingerprint"})


async def _note(connection: AnyConnection, fingerprint: str, by: str, text: str) -> None:
    words = f"regrouped by rule {RULE}: {text}"
    await connection.execute(_NOTE, fingerprint, safe_text(by, MAX_NAME), words)
