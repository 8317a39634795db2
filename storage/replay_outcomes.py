"""What became of the letters that a replay sent."""

from __future__ import annotations

from collections.abc import Sequence

from storage.errors import translate
from storage.pool import Pool

# Locked by token, as whoever stores a letter that came back locks them.
_JOB_OUTCOMES = """
WITH told AS (
    SELECT u.token,
        CASE WHEN j.id IS NULL THEN 'unknown'
             WHEN j.generation > u.generation OR j.state = 'DEAD' THEN 'died_again'
             WHEN j.state = 'SUCCEEDED' THEN 'succeeded'
             WHEN j.state = 'CANCELLED' THEN 'cancelled' END AS outcome
    FROM redrive.replay_items u
    JOIN redrive.dead_letters l ON l.id = u.letter_id
    LEFT JOIN redrive.jobs j ON j.id = l.job_id
    WHERE u.decided_at IS NULL AND u.state = 'published' AND u.generation IS NOT NULL),
due AS (
    SELECT i.token, o.outcome FROM redrive.replay_items i JOIN told o ON o.token = i.token
    WHERE o.outcome IS NOT NULL AND i.decided_at IS NULL ORDER BY i.token FOR UPDATE OF i)
UPDATE redrive.replay_items i
SET outcome = d.outcome, decided_at = now(), next_letter_id = coalesce(i.next_letter_id,
    (SELECT min(n.id) FROM redrive.dead_letters n WHERE n.replay_token = i.token))
FROM due d WHERE i.token = d.token AND i.outcome IS NULL
"""
_TRACELESS_ITEM = "i.decided_at IS NULL AND i.state = 'published' AND i.generation IS NULL"
_FOREIGN_OUTCOMES = f"""
WITH due AS (
    SELECT i.token FROM redrive.replay_items i
    WHERE {_TRACELESS_ITEM} AND i.published_at < now() - make_interval(secs => $1)
    ORDER BY i.token FOR UPDATE)
UPDATE redrive.replay_items i SET outcome = 'unknown', decided_at = now(),
    detail = 'it has not come back; what its consumer made of it leaves no trace'
FROM due d WHERE i.token = d.token AND i.outcome IS NULL
"""  # noqa: S608 - from above
# What has come back or has run by now is a job of ours after all, whose row the worker made.
_ADOPT = f"""
WITH due AS (
    SELECT i.token, j.generation
    FROM redrive.replay_items i JOIN redrive.dead_letters l ON l.id = i.letter_id
    JOIN redrive.jobs j ON j.id = l.job_id
    WHERE {_TRACELESS_ITEM} AND j.generation = coalesce(l.generation + 1, 1)
    ORDER BY i.token FOR UPDATE OF i)
UPDATE redrive.replay_items i SET generation = d.generation
FROM due d WHERE i.token = d.token AND i.outcome IS NULL
"""  # noqa: S608 - from above
_FINISH = """
UPDATE redrive.replays r
SET state = CASE r.state WHEN 'cancelled' THEN r.state ELSE 'done' END, finished_at = now()
WHERE r.finished_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM redrive.replay_items i WHERE i.replay_id = r.id AND i.decided_at IS NULL)
"""
# Where a letter went to another queue than its own, only the topology knows where it would die.
_KNOWN = "(i.target = l.target OR i.target = ANY($1::text[]))"
_TRACELESS = f"""
SELECT i.target, array_agg(DISTINCT l.dlq) AS dlqs
FROM redrive.replay_items i JOIN redrive.dead_letters l ON l.id = i.letter_id
WHERE {_TRACELESS_ITEM} AND {_KNOWN} GROUP BY i.target
"""  # noqa: S608 - from above
_CONSUMED = f"""
WITH due AS (
    SELECT i.token FROM redrive.replay_items i JOIN redrive.dead_letters l ON l.id = i.letter_id
    WHERE {_TRACELESS_ITEM} AND {_KNOWN} AND i.target = $2 AND i.next_letter_id IS NULL
      AND i.published_at <= now() - make_interval(secs => $3)
    ORDER BY i.token FOR UPDATE OF i)
UPDATE redrive.replay_items i SET outcome = 'consumed', decided_at = now()
FROM due d WHERE i.token = d.token AND i.outcome IS NULL
"""  # noqa: S608 - from above


async def decide(pool: Pool, *, foreign_after_s: float) -> None:
    """Write down what job rows tell by now, give foreign outcomes up after a time, close finished plans."""
    with translate("decide replays"):
        await pool.execute(_ADOPT)
        await pool.execute(_JOB_OUTCOMES)
        await pool.execute(_FOREIGN_OUTCOMES, foreign_after_s)
        await pool.execute(_FINISH)


async def traceless(pool: Pool, work_queues: Sequence[str]) -> dict[str, list[str]]:
    """Queues with letters that were sent there, are no jobs, and have not come back: with the dead-letter
    queues in which they would. Left out is what went to a queue that is neither its own nor a work queue.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("look for replays without a trace"):
        return {row["target"]: row["dlqs"] for row in await pool.fetch(_TRACELESS, work_queues)}


async def consumed(pool: Pool, target: str, work_queues: Sequence[str], *, older_s: float) -> int:
    """Write down that letters sent to this queue more than `older_s` seconds ago were consumed; how many."""
    with translate("decide replays"):
        done: str = await pool.execute(_CONSUMED, work_queues, target, older_s)
    return int(done.rpartition(" ")[2])
