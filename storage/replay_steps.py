"""Carrying out a replay plan: each step is one transaction, and between any two the process may be killed.

An item of a job that was staged is safe to publish again: the claim tells a second arrival of the same
generation and attempt. A message that is not ours may not be sent twice, so there a doubt stays a doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage import letter_edits
from storage.errors import translate
from storage.pool import AnyConnection, Pool
from storage.text import safe_text

_OPEN_PLANS = """
SELECT r.id::text, r.rate FROM redrive.replays r
WHERE r.state = 'running' AND EXISTS (
    SELECT 1 FROM redrive.replay_items i WHERE i.replay_id = r.id AND i.state IN ('staged', 'publishing'))
ORDER BY r.created_at
"""
_RECOVER_JOBS = """
UPDATE redrive.replay_items SET state = 'staged'
WHERE replay_id = $1::uuid AND state = 'publishing' AND generation IS NOT NULL
"""
_RECOVER_FOREIGN = """
WITH doubtful AS (
    UPDATE redrive.replay_items SET state = 'unknown', outcome = 'unknown', decided_at = now(),
        detail = 'the consumer was stopped while it was being sent; it may have been sent'
    WHERE replay_id = $1::uuid AND state = 'publishing' AND generation IS NULL RETURNING letter_id)
UPDATE redrive.dead_letters l SET state = 'replayed'
FROM doubtful d WHERE l.id = d.letter_id AND l.state = 'replaying'
"""
_PICK = """
SELECT i.token, i.letter_id, i.target, i.generation, l.properties, l.body, l.job_id,
       l.generation AS was_generation
FROM redrive.replay_items i JOIN redrive.dead_letters l ON l.id = i.letter_id
WHERE i.replay_id = $1::uuid AND i.state = 'staged' ORDER BY i.position LIMIT $2 FOR UPDATE OF i SKIP LOCKED
"""
# The guard is the state: whoever makes this transition is the one who sends the job out again.
_NEW_GENERATION = """
WITH wanted AS (SELECT j.id FROM redrive.jobs j WHERE j.id = ANY($1::text[]) ORDER BY j.id FOR UPDATE)
UPDATE redrive.jobs j
SET state = 'QUEUED', generation = j.generation + 1, attempt = 1, crashes = 0, reason = NULL, error = NULL,
    letter_id = NULL, progress = NULL, result = NULL, started_at = NULL, finished_at = NULL, queued_at = now()
FROM wanted WHERE j.id = wanted.id AND j.state = 'DEAD'
RETURNING j.id, j.generation
"""
_JOB_STATES = "SELECT id, state FROM redrive.jobs WHERE id = ANY($1::text[])"
_PUBLISHING = """
UPDATE redrive.replay_items i SET state = 'publishing', generation = t.generation
FROM unnest($1::text[], $2::integer[]) AS t (token, generation) WHERE i.token = t.token AND i.state = 'staged'
"""
_PUBLISHED = """
WITH sent AS (
    UPDATE redrive.replay_items SET state = 'published', published_at = now()
    WHERE token = ANY($1::text[]) AND state = 'publishing' RETURNING letter_id)
UPDATE redrive.dead_letters l SET state = 'replayed'
FROM sent s WHERE l.id = s.letter_id AND l.state = 'replaying'
"""
_UNSENT = (
    "UPDATE redrive.replay_items SET state = 'staged' WHERE token = ANY($1::text[]) AND state = 'publishing'"
)
_UNKNOWN = """
WITH doubtful AS (
    UPDATE redrive.replay_items SET state = 'unknown', outcome = 'unknown', decided_at = now(), detail = $2
    WHERE token = ANY($1::text[]) AND state = 'publishing' RETURNING letter_id)
UPDATE redrive.dead_letters l SET state = 'replayed'
FROM doubtful d WHERE l.id = d.letter_id AND l.state = 'replaying'
"""
_FAILED = """
UPDATE redrive.replay_items SET state = 'failed', decided_at = now(), detail = $2
WHERE token = $1 AND state IN ('staged', 'publishing') RETURNING letter_id, generation
"""
_REOPEN = "UPDATE redrive.dead_letters SET state = 'open' WHERE id = $1 AND state = 'replaying'"
# Back to how the drain had left it. Only while nothing has taken the job up: then it was sent after all.
_BURY_AGAIN = """
UPDATE redrive.jobs j
SET state = 'DEAD', reason = l.reason, letter_id = l.id, finished_at = now(), error = coalesce(
    (SELECT a.message FROM redrive.attempts a WHERE a.job_id = j.id AND a.generation < $2
     ORDER BY a.generation DESC, a.attempt DESC LIMIT 1), l.detail, l.reason)
FROM redrive.dead_letters l
WHERE l.id = $1 AND j.id = l.job_id AND j.state = 'QUEUED' AND j.generation = $2 AND j.attempt = 1
"""
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
_FINISH = """
UPDATE redrive.replays r SET state = 'done', finished_at = now()
WHERE r.state = 'running' AND NOT EXISTS (
    SELECT 1 FROM redrive.replay_items i WHERE i.replay_id = r.id
    AND (i.state IN ('staged', 'publishing') OR (i.state = 'published' AND i.outcome IS NULL)))
"""


@dataclass(frozen=True)
class Plan:
    """A plan with letters still to be sent. `rate` in letters per second, None = no limit."""

    id: str
    rate: float | None


@dataclass(frozen=True)
class Outgoing:
    """A letter to be published now. `generation` and attempt 1 are what its job waits for; None for what is
    not a job of ours. `was_generation` is what the message itself says, where it says so."""

    token: str
    letter_id: int
    target: str
    properties: bytes
    body: bytes
    generation: int | None
    was_generation: int | None


async def open_plans(pool: Pool) -> list[Plan]:
    """Plans with letters still to be sent, the oldest first."""
    with translate("look for replays"):
        return [Plan(row["id"], row["rate"]) for row in await pool.fetch(_OPEN_PLANS)]


async def recover(pool: Pool, plan: Plan) -> None:
    """What a consumer that was killed left half done: once, by the new holder of the plan's lock."""
    with translate("take up a replay"):
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(_RECOVER_JOBS, plan.id)
            await connection.execute(_RECOVER_FOREIGN, plan.id)


async def stage(pool: Pool, plan: Plan, *, limit: int) -> tuple[list[Outgoing], int]:
    """The next letters to publish, their jobs moved to the next generation; and how many failed on the way.

    ([], 0) when nothing is left.
    """
    with translate("stage a replay"):
        async with pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(_PICK, plan.id, limit)
            fresh = [row["job_id"] for row in rows if row["generation"] is None and row["job_id"] is not None]
            # Found before the move: a job in any other state than DEAD fails its item.
            states = {row["id"]: row["state"] for row in await connection.fetch(_JOB_STATES, fresh)}
            moved = {row["id"]: row["generation"] for row in await connection.fetch(_NEW_GENERATION, fresh)}
            edits = await letter_edits.newest(connection, [row["letter_id"] for row in rows])
            outgoing = []
            for row in rows:
                generation = row["generation"]
                if generation is None and row["job_id"] in states:
                    generation = moved.pop(row["job_id"], None)
                    if generation is None:
                        state = states[row["job_id"]]
                        await _fail(
                            connection, row["token"], f"its job {row['job_id']} is {state} and not DEAD"
                        )
                        continue
                edit = edits.get(row["letter_id"])
                outgoing.append(
                    Outgoing(
                        row["token"],
                        row["letter_id"],
                        row["target"],
                        row["properties"] if edit is None else edit.properties,
                        row["body"] if edit is None else edit.body,
                        generation,
                        row["was_generation"],
                    )
                )
            await connection.execute(
                _PUBLISHING, [item.token for item in outgoing], [item.generation for item in outgoing]
            )
            tokens = {item.token: edits[item.letter_id].id for item in outgoing if item.letter_id in edits}
            await letter_edits.sent(connection, tokens)
    return outgoing, len(rows) - len(outgoing)


async def published(pool: Pool, tokens: Sequence[str]) -> None:
    """The broker has confirmed these."""
    with translate("record published replays"):
        await pool.execute(_PUBLISHED, tokens)


async def unsent(pool: Pool, tokens: Sequence[str]) -> None:
    """Certainly not sent, or of a job of ours: to be tried again."""
    with translate("record unsent replays"):
        await pool.execute(_UNSENT, tokens)


async def unknown(pool: Pool, tokens: Sequence[str], why: str) -> None:
    """They may have been sent and are not ours: not to be sent again unasked."""
    with translate("record doubtful replays"):
        await pool.execute(_UNKNOWN, tokens, safe_text(why, 1_000))


async def failed(pool: Pool, token: str, why: str) -> None:
    """It cannot be sent: the letter is open again, its job DEAD again."""
    with translate("record a failed replay"):
        async with pool.acquire() as connection, connection.transaction():
            await _fail(connection, token, why)


async def _fail(connection: AnyConnection, token: str, why: str) -> None:
    item = await connection.fetchrow(_FAILED, token, safe_text(why, 1_000))
    if item is None:
        return
    # The job before the letter: in this order whoever stores letters locks them.
    if item["generation"] is not None:
        await connection.execute(_BURY_AGAIN, item["letter_id"], item["generation"])
    await connection.execute(_REOPEN, item["letter_id"])


async def decide(pool: Pool, *, foreign_after_s: float) -> None:
    """Write down what job rows tell by now, give foreign outcomes up after a time, close finished plans."""
    with translate("decide replays"):
        await pool.execute(_JOB_OUTCOMES)
        await pool.execute(_FOREIGN_OUTCOMES, foreign_after_s)
        await pool.execute(_FINISH)
