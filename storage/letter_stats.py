"""What lies among the dead letters, in numbers: sums over the groups' counts, no letter is read for them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import asyncpg

from storage.errors import translate
from storage.letter_filter import first_undecided
from storage.pool import AnyConnection, Pool, lend
from storage.schema import needs_this_release
from storage.times import shown_time

MAX_HOURS = 24 * 90
_COUNTS = """
SELECT g.queue, g.reason, c.state, sum(c.letters)::bigint AS letters
FROM redrive.group_counts c JOIN redrive.groups g USING (fingerprint)
GROUP BY g.queue, g.reason, c.state HAVING sum(c.letters) <> 0 ORDER BY g.queue, g.reason, c.state
"""
_GROUPS = """
SELECT c.fingerprint AS group, g.queue, g.task, g.reason, g.exception_type, g.last_seen,
       sum(c.letters)::bigint AS undecided
FROM redrive.group_counts c JOIN redrive.groups g USING (fingerprint)
WHERE c.state IN ('open', 'replaying', 'quarantined')
GROUP BY c.fingerprint, g.queue, g.task, g.reason, g.exception_type, g.last_seen
HAVING sum(c.letters) > 0 ORDER BY undecided DESC, g.last_seen DESC LIMIT $1
"""
_HOURS = """
SELECT h.hour, coalesce(sum(c.letters), 0)::bigint AS letters
FROM generate_series(date_trunc('hour', now(), 'UTC') - ($1 - 1) * interval '1 hour',
                     date_trunc('hour', now(), 'UTC'), interval '1 hour') AS h (hour)
LEFT JOIN redrive.group_hours c USING (hour) GROUP BY h.hour ORDER BY h.hour
"""
# Waiting since its death.
_OLDEST = first_undecided("l.id, l.dead_at, extract(epoch FROM now() - l.dead_at)::float8 AS age_s")
_NEWEST = "SELECT id, dead_at, stored_at FROM redrive.dead_letters ORDER BY id DESC LIMIT 1"


async def stats(pool: Pool | AnyConnection, *, hours: int = 24, groups: int = 10) -> dict[str, Any]:
    """Letters by state, queue, reason and hour of storing, the largest undecided groups, the oldest undecided
    letter. Copies of a letter are not counted.

    Raises:
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("count letters"), needs_this_release("count letters"):
        async with (
            lend(pool) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            counts = await connection.fetch(_COUNTS)
            largest = await connection.fetch(_GROUPS, groups)
            by_hour = await connection.fetch(_HOURS, hours)
            oldest = await connection.fetchrow(_OLDEST)
            newest = await connection.fetchrow(_NEWEST)
    states: dict[str, int] = defaultdict(int)
    queues: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    reasons: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in counts:
        states[row["state"]] += row["letters"]
        queues[row["queue"]][row["state"]] += row["letters"]
        reasons[row["reason"]][row["state"]] += row["letters"]
    return {
        "letters": sum(states.values()),
        "states": states,
        "queues": queues,
        "reasons": reasons,
        "groups": [dict(row) | {"last_seen": shown_time(row["last_seen"])} for row in largest],
        "hours": [{"hour": shown_time(row["hour"]), "letters": row["letters"]} for row in by_hour],
        "oldest_undecided": _shown(oldest),
        "newest": _shown(newest),
    }


def _shown(row: asyncpg.Record | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {name: shown_time(value) if name.endswith("_at") else value for name, value in row.items()}
