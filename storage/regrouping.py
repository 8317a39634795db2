"""Letters move to the groups in which a newer rule puts them: a batch at a time, beside running drains.

Of each group that an older rule made it is on record how far its letters were looked at, so that a run which
was killed is gone on with. Letters that are stored meanwhile are grouped by the newer rule already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storage import heirs
from storage.errors import MigrationError, translate
from storage.groups import RULE, Group
from storage.pool import AnyConnection, Pool, lend
from storage.schema import has_table

# Shorter than Postgres' deadlock_timeout (1 s): where this and a drain wait for each other, this gives way.
_GIVE_WAY = "SET LOCAL lock_timeout = '250ms'"
_OLD = """
SELECT g.fingerprint, g.letters, CASE WHEN $2 THEN 0 ELSE coalesce(s.regrouped_to, 0) END AS position,
       (SELECT coalesce(max(id), 0) FROM redrive.dead_letters) AS upto
FROM redrive.groups g LEFT JOIN redrive.group_states s USING (fingerprint)
WHERE $2 OR coalesce(s.rule, 1) < $1 ORDER BY g.fingerprint
"""
_CENSUS = """
SELECT count(*)::int AS groups, count(*) FILTER (WHERE coalesce(s.rule, 1) < $1)::int AS old
FROM redrive.groups g LEFT JOIN redrive.group_states s USING (fingerprint) WHERE g.letters > 0
"""
# The attempt that the letter was grouped by: the last one of its generation, where it had any.
_BATCH = """
SELECT l.id, l.queue, l.task, l.reason, l.exception_type, a.traceback, g.top_frame
FROM redrive.dead_letters l JOIN redrive.groups g USING (fingerprint)
LEFT JOIN LATERAL (
    SELECT traceback FROM redrive.attempts
    WHERE job_id = l.job_id AND generation = coalesce(l.generation, 1)
    ORDER BY attempt DESC LIMIT 1) a ON l.exception_type IS NOT NULL
WHERE l.fingerprint = $1 AND l.duplicate_of IS NULL AND l.id > $2 AND l.id <= $3 ORDER BY l.id LIMIT $4
"""
_MAKE = """
INSERT INTO redrive.groups (fingerprint, queue, task, reason, exception_type, top_frame)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) ORDER BY 1
ON CONFLICT DO NOTHING RETURNING fingerprint
"""
_LOCK_GROUPS = (
    "SELECT true FROM redrive.groups WHERE fingerprint = ANY($1::text[]) ORDER BY fingerprint"
    " FOR NO KEY UPDATE"
)
_LOCK_LETTERS = """
SELECT true FROM redrive.dead_letters WHERE id = ANY($1::bigint[]) OR duplicate_of = ANY($1::bigint[])
ORDER BY id FOR NO KEY UPDATE
"""
# Only what is still there: another run may have moved some.
_MOVE = """
WITH moved AS (
    UPDATE redrive.dead_letters l SET fingerprint = t.fingerprint
    FROM unnest($1::bigint[], $2::text[]) AS t (id, fingerprint)
    WHERE l.id = t.id AND l.fingerprint = $3 RETURNING l.fingerprint, l.stored_at)
SELECT fingerprint, count(*) AS letters, min(stored_at) AS first, max(stored_at) AS last
FROM moved GROUP BY fingerprint
"""
_MOVE_COPIES = """
UPDATE redrive.dead_letters l SET fingerprint = t.fingerprint
FROM unnest($1::bigint[], $2::text[]) AS t (id, fingerprint) WHERE l.duplicate_of = t.id
"""
_ADD = """
UPDATE redrive.groups SET letters = letters + $2,
    first_seen = CASE WHEN letters = 0 THEN $3 ELSE least(first_seen, $3) END,
    last_seen = CASE WHEN letters = 0 THEN $4 ELSE greatest(last_seen, $4) END
WHERE fingerprint = $1
"""
_TAKE = "UPDATE redrive.groups SET letters = letters - $2 WHERE fingerprint = $1"
_LOOKED_AT = """
INSERT INTO redrive.group_states AS s (fingerprint, regrouped_to) VALUES ($1, $2)
ON CONFLICT (fingerprint) DO UPDATE SET rule = least(s.rule, $3 - 1), regrouped_to = excluded.regrouped_to
"""
_DONE = """
INSERT INTO redrive.group_states (fingerprint, rule) VALUES ($1, $2)
ON CONFLICT (fingerprint) DO UPDATE SET rule = excluded.rule, regrouped_to = 0
"""
# An import brings letters as another rule grouped them, also while their group is looked at.
_LATE = """
SELECT EXISTS (SELECT FROM redrive.imported_letters i JOIN redrive.dead_letters l ON l.id = i.letter_id
               WHERE i.letter_id > $2 AND l.fingerprint = $1)
"""
# Letters that are gone stay counted, and then nobody knows which was the first or the last of the others.
_SEEN = """
UPDATE redrive.groups g SET first_seen = first.stored_at, last_seen = last.stored_at
FROM (SELECT stored_at FROM redrive.dead_letters WHERE fingerprint = $1 AND duplicate_of IS NULL
      ORDER BY id LIMIT 1) AS first,
     (SELECT stored_at FROM redrive.dead_letters WHERE fingerprint = $1 AND duplicate_of IS NULL
      ORDER BY id DESC LIMIT 1) AS last
WHERE g.fingerprint = $1
  AND g.letters = (SELECT sum(letters) FROM redrive.group_counts WHERE fingerprint = $1)
"""


@dataclass(frozen=True)
class OldGroup:
    """A group to look at. `position`: the last letter (id) that was; `upto`: the last one to look at."""

    fingerprint: str
    letters: int
    position: int
    upto: int


@dataclass(frozen=True)
class StoredLetter:
    """What a letter is grouped by. `top_frame`: its group's; `traceback`: None once its job is gone."""

    id: int
    queue: str
    task: str | None
    reason: str
    exception_type: str | None
    traceback: str | None
    top_frame: str | None


@dataclass(frozen=True)
class Census:
    """Groups that have letters, and how many of these an older rule made."""

    groups: int
    old: int


async def census(db: Pool | AnyConnection) -> Census | None:
    """None on the schema of the release before. Raises DatabaseAwayError."""
    with translate("count groups by rule"):
        async with lend(db) as connection:
            if not await has_table(connection, "group_states"):
                return None
            row = await connection.fetchrow(_CENSUS, RULE)
    assert row is not None
    return Census(row["groups"], row["old"])


async def old_groups(db: Pool | AnyConnection, *, everything: bool = False) -> list[OldGroup]:
    """Those that an older rule made; with `everything` all there are, from their first letter.

    Raises:
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("look for groups by an older rule"):
        async with lend(db) as connection:
            if not await has_table(connection, "alert_subjects"):
                raise MigrationError("this needs the schema of this release. Run: storage migrate")
            return [OldGroup(**dict(row)) for row in await connection.fetch(_OLD, RULE, everything)]


async def batch(
    db: Pool | AnyConnection, fingerprint: str, *, after: int, upto: int, limit: int
) -> list[StoredLetter]:
    """The next letters of a group, by id, without copies. Raises DatabaseAwayError."""
    with translate(f"read group {fingerprint}"):
        return [StoredLetter(**dict(row)) for row in await db.fetch(_BATCH, fingerprint, after, upto, limit)]


async def move(
    db: Pool | AnyConnection, old: str, letters: Mapping[int, Group], *, position: int, last: bool, by: str
) -> dict[str, int]:
    """Give letters (id) of group `old` to other groups, with what was decided about it: how many each got.

    Args:
        position: all letters up to this id were looked at.
        last: and these are all; the group is one of the newer rule from now on, but for letters that were
            imported meanwhile.
        by: who asks for it; kept in the groups' notes.

    Raises:
        ConflictError: another transaction was in the way; nothing is done.
        DatabaseAwayError: Postgres cannot be reached.
    """
    groups = {group.fingerprint: group for group in letters.values()}
    with translate(f"regroup {old}"):
        async with lend(db) as connection, connection.transaction():
            await connection.execute(_GIVE_WAY)
            new = await _make(connection, list(groups.values()))
            await connection.fetch(_LOCK_GROUPS, sorted({*groups, old}))
            moved = await _move(connection, old, letters) if letters else {}
            for heir in moved:
                await heirs.inherit(connection, old, heir, is_new=heir in new, by=by)
            if not last or await connection.fetchval(_LATE, old, position):
                await connection.execute(_LOOKED_AT, old, position, RULE)
                return moved
            await connection.execute(_DONE, old, RULE)
            if gone_to := await heirs.of(connection, old):
                await connection.execute(_SEEN, old)
                await heirs.leave(connection, old, gone_to, by=by)
    return moved


async def _make(connection: AnyConnection, groups: Sequence[Group]) -> set[str]:
    """Those that were not there. Empty and unnoticed, should all letters be gone by now."""
    if not groups:
        return set()
    columns = ("fingerprint", "queue", "task", "reason", "exception_type", "top_frame")
    rows = await connection.fetch(_MAKE, *([getattr(group, name) for group in groups] for name in columns))
    return {row["fingerprint"] for row in rows}


async def _move(connection: AnyConnection, old: str, letters: Mapping[int, Group]) -> dict[str, int]:
    ids, prints = list(letters), [group.fingerprint for group in letters.values()]
    await connection.fetch(_LOCK_LETTERS, ids)
    rows = await connection.fetch(_MOVE, ids, prints, old)
    await connection.execute(_MOVE_COPIES, ids, prints)
    for row in sorted(rows, key=lambda row: str(row["fingerprint"])):
        await connection.execute(_ADD, row["fingerprint"], row["letters"], row["first"], row["last"])
    await connection.execute(_TAKE, old, sum(row["letters"] for row in rows))
    return {row["fingerprint"]: row["letters"] for row in rows}
