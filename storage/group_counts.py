"""Folds the rows that count letters: see 0008_groups.sql."""

from __future__ import annotations

from storage.errors import translate
from storage.group_list import MAX_HOURS
from storage.pool import AnyConnection, Pool
from storage.schema import off_without_table

# So many rows of one group (and hour) are read as quickly as one.
CROWDED = 50

# Rows that come meanwhile are not in the snapshot and stay; rows that another process folds are gone
# when their turn comes. So any number of processes may do it at once.
_FOLD_COUNTS = """
WITH crowded AS (SELECT fingerprint FROM redrive.group_counts GROUP BY fingerprint HAVING count(*) > $1),
gone AS (
    DELETE FROM redrive.group_counts c USING crowded WHERE c.fingerprint = crowded.fingerprint
    RETURNING c.fingerprint, c.state, c.letters)
INSERT INTO redrive.group_counts (fingerprint, state, letters)
SELECT fingerprint, state, sum(letters) FROM gone GROUP BY 1, 2 HAVING sum(letters) <> 0
"""
_FOLD_HOURS = """
WITH crowded AS (
    SELECT fingerprint, hour FROM redrive.group_hours WHERE hour > now() - interval '2 hours'
    GROUP BY fingerprint, hour HAVING count(*) > $1),
gone AS (
    DELETE FROM redrive.group_hours h USING crowded c WHERE h.fingerprint = c.fingerprint AND h.hour = c.hour
    RETURNING h.fingerprint, h.hour, h.dlq, h.letters)
INSERT INTO redrive.group_hours (fingerprint, hour, dlq, letters)
SELECT fingerprint, hour, dlq, sum(letters) FROM gone GROUP BY 1, 2, 3 HAVING sum(letters) <> 0
"""
# Hours that no list shows any more become one, of each group and queue.
_FOLD_OLD_HOURS = """
WITH gone AS (
    DELETE FROM redrive.group_hours WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM redrive.group_hours
        WHERE hour < now() - make_interval(hours => $1) AND hour > 'epoch' LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING fingerprint, dlq, letters),
folded AS (
    DELETE FROM redrive.group_hours h USING (SELECT DISTINCT fingerprint, dlq FROM gone) g
    WHERE h.fingerprint = g.fingerprint AND h.dlq = g.dlq AND h.hour = 'epoch'
    RETURNING h.fingerprint, h.dlq, h.letters),
together AS (
    INSERT INTO redrive.group_hours (fingerprint, hour, dlq, letters)
    SELECT fingerprint, 'epoch', dlq, sum(letters) FROM (TABLE gone UNION ALL TABLE folded) t
    GROUP BY fingerprint, dlq HAVING sum(letters) <> 0)
SELECT count(*) FROM gone
"""


@off_without_table(otherwise=lambda: None)
async def fold(db: Pool | AnyConnection) -> None:
    """Each sum stays what it is. Raises DatabaseAwayError."""
    with translate("fold counts"):
        await db.execute(_FOLD_COUNTS, CROWDED)
        await db.execute(_FOLD_HOURS, CROWDED)


@off_without_table(otherwise=lambda: 0)
async def fold_old_hours(db: Pool | AnyConnection, *, batch: int) -> int:
    """Fold `batch` rows at most that are older than any list shows; how many. A group's sum by queue stays.

    Raises DatabaseAwayError.
    """
    with translate("fold counts"):
        return int(await db.fetchval(_FOLD_OLD_HOURS, MAX_HOURS, batch))
