"""Jobs whose message the broker has confirmed, and whose rows somebody else had when that was recorded."""

from __future__ import annotations

from collections.abc import Collection

from storage.errors import translate
from storage.pool import AnyConnection

# At a time.
BATCH = 1_000
# A PENDING job has its message in the outbox, by one transaction, and loses it by the one that records the
# confirm: one without is such a job.
_FIND = f"""
SELECT j.id FROM redrive.jobs j
WHERE j.state = 'PENDING' AND NOT EXISTS (SELECT FROM redrive.outbox o WHERE o.job_id = j.id)
LIMIT {BATCH}
"""  # noqa: S608 - a number of ours
# Locked ones are for the next time: a worker's batch may hold some and want others.
_RECORD = """
WITH free AS (
    SELECT id FROM redrive.jobs WHERE id = ANY ($1::text[]) AND state || '' = 'PENDING'
    FOR NO KEY UPDATE SKIP LOCKED
), queued AS (
    UPDATE redrive.jobs SET state = 'QUEUED', queued_at = now()
    WHERE id = ANY (ARRAY(SELECT id FROM free)) AND state || '' = 'PENDING' RETURNING id
)
SELECT id FROM redrive.jobs
WHERE id = ANY ($1::text[]) AND state || '' = 'PENDING' AND id NOT IN (SELECT id FROM queued)
"""


async def find(db: AnyConnection) -> list[str]:
    """At most `BATCH` of them, such as a relay left that was killed. Reads all PENDING jobs.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("look for jobs whose confirm is not recorded"):
        return [row["id"] for row in await db.fetch(_FIND)]


async def record(db: AnyConnection, job_ids: Collection[str]) -> list[str]:
    """Have at most `BATCH` QUEUED, if they are still PENDING. Those whose rows somebody has: ask again.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("record that jobs are queued"):
        return [row["id"] for row in await db.fetch(_RECORD, list(job_ids))]
