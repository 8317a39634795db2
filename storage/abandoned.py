"""Jobs that wait for a message which is among the dead letters: their worker is lost."""

from __future__ import annotations

from storage.errors import translate
from storage.pool import Pool

# Of jobs that are DEAD. Without their state in the condition: by that it would be planned over all dead jobs.
END_ATTEMPTS = """
UPDATE redrive.attempts a SET outcome = 'lost', reason = j.reason, ended_at = now()
FROM redrive.jobs j
WHERE j.id = ANY($1::text[]) AND a.job_id = j.id AND a.outcome = 'running'
"""
_ABANDONED = """
UPDATE redrive.jobs j
SET state = 'DEAD', reason = l.reason, error = coalesce(l.detail, l.reason), letter_id = l.id,
    finished_at = now(), claim = NULL, worker = NULL, lease_until = NULL, lease_cap = NULL
FROM redrive.dead_letters l
WHERE j.state = 'RUNNING' AND j.lease_until < now() - make_interval(secs => $1)
  AND l.job_id = j.id AND l.state = 'open' AND j.generation <= coalesce(l.generation, 1)
RETURNING j.id
"""


async def bury_abandoned(pool: Pool, *, grace_s: float = 60.0) -> list[str]:
    """Jobs whose worker was lost while their message was dead-lettered by the broker: DEAD now. Their ids.

    Args:
        grace_s: time after the end of the lease for a message that is not dead to be delivered again.
    """
    with translate("look for abandoned jobs"):
        async with pool.acquire() as connection, connection.transaction():
            jobs = [str(row["id"]) for row in await connection.fetch(_ABANDONED, grace_s)]
            if jobs:
                await connection.execute(END_ATTEMPTS, jobs)
            return jobs
