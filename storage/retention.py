"""Letters that were decided on long ago go; what nobody has decided on stays for ever. Alerts go by age."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from storage import expired_items
from storage.errors import MigrationError, translate
from storage.letter_filter import UNTOLD
from storage.pool import AnyConnection, Pool, lend
from storage.schema import has_table, off_without_table

Decided = Literal["discarded", "replayed"]
# How long a letter that is gone is known again, where it had an identity.
REMEMBERED_DAYS = 365

# Of a page of the index, those whose decision is old enough. An outcome that nobody knows is no decision,
# and what a replay that is not over tells of its letters is not over either.
_LOOK = {
    "discarded": """coalesce((
        SELECT max(a.at) FROM redrive.letter_actions a
        WHERE a.letter_id = p.id AND a.action = 'discard'), p.stored_at) < now() - $1::interval""",
    # An imported one was replayed elsewhere.
    "replayed": f"""coalesce((
        SELECT bool_and(i.decided_at IS NOT NULL AND NOT {UNTOLD}
                        AND i.decided_at < now() - $1::interval)
        FROM redrive.replay_items i WHERE i.letter_id = p.id), true)""",  # noqa: S608 - a text of our own
}
_PAGE = """
WITH page AS MATERIALIZED (
    SELECT l.id, l.stored_at, l.duplicate_of FROM redrive.dead_letters l
    WHERE l.state = '{state}' AND l.id > $2 ORDER BY l.id LIMIT $3)
SELECT p.id, p.duplicate_of IS NULL AND p.stored_at < now() - $1::interval AND {due} AND NOT EXISTS (
    SELECT 1 FROM redrive.replay_items i JOIN redrive.replays r ON r.id = i.replay_id
    WHERE i.letter_id = p.id AND r.finished_at IS NULL) AS due
FROM page p ORDER BY p.id
"""
# The job before the letter: in this order whoever stores letters locks them. What is busy is left.
_LOCK_JOBS = """
SELECT j.id FROM redrive.jobs j
WHERE j.id IN (SELECT l.job_id FROM redrive.dead_letters l WHERE l.id = ANY($1::bigint[]))
ORDER BY j.id FOR UPDATE SKIP LOCKED
"""
_LOCK = """
SELECT l.id FROM redrive.dead_letters l
WHERE l.id = ANY($1::bigint[]) AND l.state = $2 AND (l.job_id IS NULL OR l.job_id = ANY($3::text[])
      OR NOT EXISTS (SELECT 1 FROM redrive.jobs j WHERE j.id = l.job_id))
ORDER BY l.id FOR UPDATE SKIP LOCKED
"""
_COPIES = "SELECT id FROM redrive.dead_letters WHERE duplicate_of = ANY($1::bigint[]) ORDER BY id FOR UPDATE"
_REMEMBER = """
INSERT INTO redrive.expired_letters AS e (identity, session_id)
SELECT identity, max(session_id) FROM redrive.dead_letters WHERE id = ANY($1::bigint[]) AND has_identity
GROUP BY identity ORDER BY identity
ON CONFLICT (identity) DO UPDATE
    SET session_id = greatest(e.session_id, excluded.session_id), expired_at = excluded.expired_at
"""
_UNLINK = """
UPDATE redrive.jobs j SET letter_id = NULL FROM redrive.dead_letters l
WHERE l.id = ANY($1::bigint[]) AND j.id = l.job_id AND j.letter_id = l.id
"""
_DELETE = "DELETE FROM redrive.dead_letters WHERE id = ANY($1::bigint[])"
_FORGET = "DELETE FROM redrive.expired_letters WHERE expired_at < now() - make_interval(days => $1)"
_EXPIRED = """
SELECT identity FROM redrive.expired_letters WHERE identity = ANY($1::bytea[]) AND session_id < $2
"""
# What is still to be sent stays however old it is.
_ALERTS = """
WITH gone AS (
    DELETE FROM redrive.alerts WHERE id IN (
        SELECT id FROM redrive.alerts
        WHERE created_at < now() - $1::interval AND state NOT IN ('pending', 'sending')
        ORDER BY created_at, id LIMIT $2 FOR UPDATE SKIP LOCKED)
    RETURNING id)
SELECT count(*) FROM gone
"""


@dataclass(frozen=True)
class Step:
    """`gone`: letters deleted. `after`: where the next step goes on; None at the end."""

    gone: int
    after: int | None


async def expire(
    pool: Pool | AnyConnection, state: Decided, *, days: float, batch: int, after: int = 0
) -> Step:
    """Look at `batch` letters of a state after that id, and delete those decided on over `days` ago, in one
    transaction, with their copies, edits, history and items of replays.

    Raises:
        MigrationError: the schema is that of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    look = _PAGE.format(state=state, due=_LOOK[state])
    with translate("expire letters"):
        async with lend(pool) as connection, connection.transaction():
            if not await has_table(connection, expired_items.TABLE):
                raise MigrationError("REDRIVE_RETENTION_DAYS needs the schema of this release")
            rows = await connection.fetch(look, timedelta(days=days), after, batch)
            due = [row["id"] for row in rows if row["due"]]
            gone = await _delete(connection, state, due) if due else 0
    return Step(gone, rows[-1]["id"] if len(rows) == batch else None)


async def expire_alerts(pool: Pool | AnyConnection, *, days: float, batch: int) -> int:
    """Delete up to `batch` alerts that were raised over `days` ago and are not to be sent any more; how many.

    What alerts are raised by is kept elsewhere: none comes again for it. Raises DatabaseAwayError.
    """
    with translate("expire alerts"):
        return int(await pool.fetchval(_ALERTS, timedelta(days=days), batch))


@off_without_table(otherwise=lambda: None)
async def forget(pool: Pool | AnyConnection) -> None:
    """Letters that went over `REMEMBERED_DAYS` ago are not known again."""
    with translate("forget expired letters"):
        await pool.execute(_FORGET, REMEMBERED_DAYS)


async def expired(connection: AnyConnection, identities: Sequence[bytes], session_id: int) -> set[bytes]:
    """Which of these letters, stored before this session, have gone. To be called inside `translate`."""
    if not await has_table(connection, expired_items.TABLE):
        return set()
    return {bytes(row["identity"]) for row in await connection.fetch(_EXPIRED, identities, session_id)}


async def _delete(connection: AnyConnection, state: Decided, due: Sequence[int]) -> int:
    jobs = [row["id"] for row in await connection.fetch(_LOCK_JOBS, due)]
    ids = [row["id"] for row in await connection.fetch(_LOCK, due, state, jobs)]
    ids += [row["id"] for row in await connection.fetch(_COPIES, ids)]
    if ids:
        await connection.execute(_REMEMBER, ids)
        await connection.execute(_UNLINK, ids)
        await expired_items.fold(connection, ids)
        await connection.execute(_DELETE, ids)
    return len(ids)
