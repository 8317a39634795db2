"""Carrying out a replay plan: each step is one transaction, and between any two the process may be killed.

An item of a job that was staged is safe to publish again: the claim tells a second arrival of the same
generation and attempt. A message that is not ours may not be sent twice, so there a doubt stays a doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from storage import letter_edits, replay_control, replay_picks
from storage.errors import translate
from storage.pool import AnyConnection, Pool, lend
from storage.replay_control import REOPENED
from storage.replay_locks import BEING_SENT, LETTERS_OF_ITEMS, REPLAYED
from storage.replay_picks import Plan
from storage.replay_plans import TERMS
from storage.schema import has_table
from storage.text import safe_text

_NO_BOUND = 2**31 - 1
# A cancelled plan is brought to its end: what was begun is sent, the rest is open again.
_OPEN_PLANS = """
SELECT r.id::text, r.rate FROM redrive.replays r{terms}
WHERE (r.state = 'running' AND EXISTS (
        SELECT 1 FROM redrive.replay_items i
        WHERE i.replay_id = r.id AND i.decided_at IS NULL AND i.state IN ('staged', 'publishing'){bound}))
   OR (r.state = 'cancelled' AND r.finished_at IS NULL AND EXISTS (
        SELECT 1 FROM redrive.replay_items i
        WHERE i.replay_id = r.id AND i.decided_at IS NULL AND i.state IN ('staged', 'publishing')))
ORDER BY r.created_at
"""
_CANARY = "CASE WHEN t.canary_is_over THEN NULL ELSE t.canary END"
_WITH_TERMS = {
    True: {
        "terms": " LEFT JOIN redrive.replay_terms t ON t.replay_id = r.id",
        "bound": f" AND (i.state = 'publishing' OR i.position <= coalesce({_CANARY}, i.position))",
    },
    False: {"terms": "", "bound": ""},
}
# Whoever pauses or cancels it waits for this transaction, and is heeded by the next.
_TURN = """
SELECT r.state, {canary} AS bound FROM redrive.replays r{terms} WHERE r.id = $1::uuid FOR SHARE OF r
"""
_RECOVER_JOBS = """
UPDATE redrive.replay_items SET state = 'staged'
WHERE replay_id = $1::uuid AND decided_at IS NULL AND state = 'publishing' AND generation IS NOT NULL
"""
_RECOVER_FOREIGN = f"""
WITH items AS (
    SELECT token, letter_id FROM redrive.replay_items
    WHERE replay_id = $1::uuid AND decided_at IS NULL AND state = 'publishing' AND generation IS NULL
    ORDER BY token FOR UPDATE),
{LETTERS_OF_ITEMS}
doubtful AS (
    UPDATE redrive.replay_items i SET state = 'unknown', outcome = 'unknown', decided_at = now(),
        detail = 'the consumer was stopped while it was being sent; it may have been sent'
    WHERE i.token = ANY (ARRAY(SELECT token FROM items)))
{REPLAYED}
"""  # noqa: S608 - from storage.replay_locks
# The guard is the state, asked under the lock: whoever makes this transition is the one who sends the job
# out again. In the update's own condition it was planned over all DEAD jobs.
_LOCK_JOBS = "SELECT id, state FROM redrive.jobs WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE"
_NEW_GENERATION = """
UPDATE redrive.jobs j
SET state = 'QUEUED', queue = a.target, generation = j.generation + 1, attempt = 1, crashes = 0, retries = 0,
    retry_arguments = NULL, reason = NULL, error = NULL, letter_id = NULL, progress = NULL, result = NULL,
    started_at = NULL, finished_at = NULL, queued_at = now()
FROM unnest($1::text[], $2::text[]) AS a (id, target) WHERE j.id = a.id
RETURNING j.id, j.generation
"""
_PUBLISHING = """
UPDATE redrive.replay_items i SET state = 'publishing', generation = t.generation
FROM unnest($1::text[], $2::integer[]) AS t (token, generation)
WHERE i.token = t.token AND i.state = 'staged'
"""
_PUBLISHED = f"""
{BEING_SENT}
{LETTERS_OF_ITEMS}
sent AS (
    UPDATE redrive.replay_items i SET state = 'published', published_at = now()
    WHERE i.token = ANY (ARRAY(SELECT token FROM items)))
{REPLAYED}
"""  # noqa: S608 - from storage.replay_locks
_UNSENT = (
    "UPDATE redrive.replay_items SET state = 'staged' WHERE token = ANY($1::text[]) AND state = 'publishing'"
)
_UNKNOWN = f"""
{BEING_SENT}
{LETTERS_OF_ITEMS}
doubtful AS (
    UPDATE redrive.replay_items i SET state = 'unknown', outcome = 'unknown', decided_at = now(), detail = $2
    WHERE i.token = ANY (ARRAY(SELECT token FROM items)))
{REPLAYED}
"""  # noqa: S608 - from storage.replay_locks
_FAILED = """
UPDATE redrive.replay_items SET state = 'failed', decided_at = now(), detail = $2
WHERE token = $1 AND state IN ('staged', 'publishing') RETURNING letter_id, generation
"""
_REOPEN = f"UPDATE redrive.dead_letters l SET state = {REOPENED} WHERE l.id = $1 AND l.state = 'replaying'"  # noqa: S608
# Back to how the drain had left it. Only while nothing has taken the job up: then it was sent after all.
_BURY_AGAIN = """
UPDATE redrive.jobs j
SET state = 'DEAD', queue = l.queue, reason = l.reason, letter_id = l.id, finished_at = now(),
    error = coalesce((SELECT a.message FROM redrive.attempts a WHERE a.job_id = j.id AND a.generation < $2
     ORDER BY a.generation DESC, a.attempt DESC LIMIT 1), l.detail, l.reason)
FROM redrive.dead_letters l
WHERE l.id = $1 AND j.id = l.job_id AND j.state = 'QUEUED' AND j.generation = $2 AND j.attempt = 1
"""


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


@dataclass(frozen=True)
class Step:
    """What comes next of a plan. `outgoing` is to be published; `failed` and `dropped` letters are over.

    Nothing of either: nothing is to be done now, since all is sent, or paused, or a canary is on its way.
    """

    outgoing: list[Outgoing]
    failed: int = 0
    dropped: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.outgoing or self.failed or self.dropped)


async def open_plans(pool: Pool) -> list[Plan]:
    """Plans of which something is to be sent or closed now, the oldest first."""
    with translate("look for replays"):
        async with lend(pool) as connection:
            words = _WITH_TERMS[await has_table(connection, TERMS)]
            rows = await connection.fetch(_OPEN_PLANS.format(**words))
    return [Plan(row["id"], row["rate"], has_terms=bool(words["terms"])) for row in rows]


async def recover(pool: Pool, plan: Plan) -> None:
    """What a consumer that was killed left half done: once, by the new holder of the plan's lock."""
    with translate("take up a replay"):
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(_RECOVER_JOBS, plan.id)
            await connection.execute(_RECOVER_FOREIGN, plan.id)


async def stage(pool: Pool, plan: Plan, *, limit: int) -> Step:
    """The next letters to publish, `limit` at most, their jobs moved to the next generation."""
    with translate("stage a replay"):
        async with pool.acquire() as connection, connection.transaction():
            words = _WITH_TERMS[plan.has_terms]
            canary = _CANARY if plan.has_terms else "NULL::integer"
            turn = await connection.fetchrow(_TURN.format(canary=canary, **words), plan.id)
            if turn is None or turn["state"] not in ("running", "cancelled"):
                return Step([])
            is_over = turn["state"] == "cancelled"
            dropped = await replay_control.drop(connection, plan.id) if is_over else 0
            bound = _NO_BOUND if turn["bound"] is None or is_over else turn["bound"]
            rows = await replay_picks.pick(connection, plan, limit, bound, is_over=is_over)
            outgoing, failed = await _move_jobs(connection, rows)
            if outgoing:
                await connection.execute(
                    _PUBLISHING, [item.token for item in outgoing], [item.generation for item in outgoing]
                )
            return Step(outgoing, failed, dropped)


async def _move_jobs(connection: AnyConnection, rows: Sequence[asyncpg.Record]) -> tuple[list[Outgoing], int]:
    fresh = {
        row["job_id"]: row["target"]
        for row in rows
        if row["generation"] is None and row["job_id"] is not None
    }
    states: dict[str, str] = {}
    moved: dict[str, int] = {}
    if fresh:
        states = {row["id"]: row["state"] for row in await connection.fetch(_LOCK_JOBS, list(fresh))}
        dead = [job for job, state in states.items() if state == "DEAD"]
        if dead:
            made = await connection.fetch(_NEW_GENERATION, dead, [fresh[job] for job in dead])
            moved = {row["id"]: row["generation"] for row in made}
    edits = await letter_edits.newest(connection, [row["letter_id"] for row in rows])
    outgoing = []
    for row in rows:
        generation = row["generation"]
        if generation is None and row["job_id"] in states:
            generation = moved.pop(row["job_id"], None)
            if generation is None:
                job, state = row["job_id"], states[row["job_id"]]
                why = f"its job {job} is {state} and not DEAD"
                if state == "DEAD":  # before this step
                    why = f"another letter of this replay is of the same job {job}"
                await _fail(connection, row["token"], why)
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
    tokens = {item.token: edits[item.letter_id].id for item in outgoing if item.letter_id in edits}
    await letter_edits.sent(connection, tokens)
    return outgoing, len(rows) - len(outgoing)


async def published(pool: Pool, tokens: Sequence[str]) -> None:
    """The broker has confirmed these."""
    if tokens:
        with translate("record published replays"):
            await pool.execute(_PUBLISHED, tokens)


async def unsent(pool: Pool, tokens: Sequence[str]) -> None:
    """Certainly not sent, or of a job of ours: to be tried again."""
    if tokens:
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
