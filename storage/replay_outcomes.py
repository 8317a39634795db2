"""What became of the letters that a replay sent."""

from __future__ import annotations

from storage.errors import translate
from storage.pool import Pool

_JOB_OUTCOMES = """
UPDATE redrive.replay_items i
SET outcome = o.outcome, decided_at = now(), next_letter_id = coalesce(i.next_letter_id, o.next_letter_id)
FROM (
    SELECT u.token,
        CASE WHEN j.id IS NULL THEN 'unknown'
             WHEN j.generation > u.generation OR j.state = 'DEAD' THEN 'died_again'
             WHEN j.state = 'SUCCEEDED' THEN 'succeeded'
             WHEN j.state = 'CANCELLED' THEN 'cancelled' END AS outcome,
        (SELECT min(n.id) FROM redrive.dead_letters n WHERE n.replay_token = u.token) AS next_letter_id
    FROM redrive.replay_items u
    JOIN redrive.dead_letters l ON l.id = u.letter_id
    LEFT JOIN redrive.jobs j ON j.id = l.job_id
    WHERE u.state = 'published' AND u.outcome IS NULL AND u.generation IS NOT NULL) o
WHERE i.token = o.token AND o.outcome IS NOT NULL AND i.outcome IS NULL
"""
_FOREIGN_OUTCOMES = """
UPDATE redrive.replay_items SET outcome = 'unknown', decided_at = now(),
    detail = 'it has not come back; what its consumer made of it leaves no trace'
WHERE state = 'published' AND outcome IS NULL AND generation IS NULL
  AND published_at < now() - make_interval(secs => $1)
"""
# What has come back or has run by now is a job of ours after all, whose row the worker made.
_ADOPT = """
UPDATE redrive.replay_items i SET generation = j.generation
FROM redrive.dead_letters l JOIN redrive.jobs j ON j.id = l.job_id
WHERE i.letter_id = l.id AND i.state = 'published' AND i.outcome IS NULL AND i.generation IS NULL
  AND j.generation = coalesce(l.generation + 1, 1)
"""
_FINISH = """
UPDATE redrive.replays r
SET state = CASE r.state WHEN 'cancelled' THEN r.state ELSE 'done' END, finished_at = now()
WHERE r.finished_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM redrive.replay_items i WHERE i.replay_id = r.id
    AND (i.state IN ('staged', 'publishing') OR (i.state = 'published' AND i.outcome IS NULL)))
"""
_TRACELESS = """
SELECT i.target, array_agg(DISTINCT l.dlq) AS dlqs
FROM redrive.replay_items i JOIN redrive.dead_letters l ON l.id = i.letter_id
WHERE i.state = 'published' AND i.outcome IS NULL AND i.generation IS NULL GROUP BY i.target
"""
_CONSUMED = """
UPDATE redrive.replay_items SET outcome = 'consumed', decided_at = now()
WHERE target = $1 AND state = 'published' AND outcome IS NULL AND generation IS NULL
  AND next_letter_id IS NULL AND published_at <= now() - make_interval(secs => $2)
"""


async def decide(pool: Pool, *, foreign_after_s: float) -> None:
    """Write down what job rows tell by now, give foreign outcomes up after a time, close finished plans."""
    with translate("decide replays"):
        await pool.execute(_ADOPT)
        await pool.execute(_JOB_OUTCOMES)
        await pool.execute(_FOREIGN_OUTCOMES, foreign_after_s)
        await pool.execute(_FINISH)


async def traceless(pool: Pool) -> dict[str, list[str]]:
    """Queues with letters that were sent there, are no jobs, and have not come back: with the dead-letter
    queues in which they would.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("look for replays without a trace"):
        return {row["target"]: row["dlqs"] for row in await pool.fetch(_TRACELESS)}


async def consumed(pool: Pool, target: str, *, older_s: float) -> int:
    """Write down that letters sent to this queue more than `older_s` seconds ago were consumed; how many."""
    with translate("decide replays"):
        done: str = await pool.execute(_CONSUMED, target, older_s)
    return int(done.rpartition(" ")[2])
