"""Jobs that say RUNNING though their worker was lost long ago and their message never came again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import asyncpg

from storage import job_options
from storage.claims import TIMEOUT_S, refusals
from storage.job_options import merged
from storage.schema import has_table

# At a time; the rest is for the next look.
BATCH = 200

# The last renewal may have been long before the end of the run: whoever can be heard of no more may still
# have run until `lease_cap`. A job whose message is among the dead letters is the dead-letter consumer's.
_GIVE_UP = """
WITH lost AS (
    SELECT j.id, j.claim, j.lease_cap IS NOT NULL AS begun,
           j.lease_cap IS NOT NULL AND j.crashes + 1 >= $1 AS dead
    FROM redrive.jobs AS j
    WHERE j.state = 'RUNNING'
      AND greatest(j.lease_until, j.lease_cap) < clock_timestamp() - $2::float8 * interval '1 second'
      AND NOT EXISTS (SELECT FROM redrive.dead_letters AS l WHERE l.job_id = j.id AND l.state = 'open'
                      AND coalesce(l.generation, 1) >= j.generation)
    LIMIT $3
    FOR UPDATE OF j SKIP LOCKED
), over AS (
    UPDATE redrive.jobs AS j
    SET crashes = j.crashes + lost.begun::int,
        state = CASE WHEN lost.dead THEN 'DEAD'
                     WHEN NOT lost.begun AND j.attempt = 1 THEN 'QUEUED'
                     ELSE 'RETRYING' END,
        attempt = j.attempt + (lost.begun AND NOT lost.dead)::int,
        claim = NULL, lease_until = NULL, lease_cap = NULL,
        reason = CASE WHEN lost.dead THEN 'worker_lost' END,
        error = CASE WHEN lost.dead THEN 'the worker was lost; crashed attempts: ' || (j.crashes + 1)
                     ELSE 'the worker was lost, and the message did not come again' END,
        finished_at = CASE WHEN lost.dead THEN now() END
    FROM lost WHERE j.id = lost.id
    RETURNING j.*, lost.begun, lost.claim AS lost_claim
), ended AS (
    UPDATE redrive.attempts AS a
    SET outcome = CASE WHEN over.begun THEN 'lost' ELSE 'returned' END,
        reason = 'worker_lost', ended_at = now()
    FROM over WHERE a.job_id = over.id AND a.claim = over.lost_claim
)
SELECT id, type, queue, state, generation, attempt, retries, retry_arguments, retry_options,
       CASE WHEN origin = 'api' THEN payload END AS payload
FROM over
"""
# It may have other arguments than were submitted: of a `Task.retry` before, or of an edit.
_REPLAYED = """
SELECT DISTINCT ON (j.id) j.id, coalesce(e.body, l.body) AS body
FROM unnest($1::text[], $2::integer[]) AS j (id, generation)
JOIN redrive.dead_letters AS l ON l.job_id = j.id
JOIN redrive.replay_items AS i ON i.letter_id = l.id AND i.generation = j.generation
LEFT JOIN redrive.replayed_edits AS s ON s.token = i.token
LEFT JOIN redrive.letter_edits AS e ON e.id = s.edit_id
ORDER BY j.id, i.token
"""
_SEND = """
INSERT INTO redrive.outbox (job_id, queue, properties, body, token)
SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[], $5::text[])
"""


@dataclass(frozen=True)
class LostJob:
    """What its row says now. `payload` is JSON, for jobs that were accepted over HTTP; `replayed` the body
    that a replay sent as this generation."""

    id: str
    type: str
    queue: str
    state: str
    generation: int
    attempt: int
    retries: int
    retry_arguments: bytes | None
    retry_options: bytes | None
    payload: bytes | None
    replayed: bytes | None = None


@dataclass(frozen=True)
class NewMessage:
    """A message for the outbox: raw properties, and the token that its publish is known by."""

    queue: str
    properties: bytes
    body: bytes
    token: str


async def give_up(
    connection: asyncpg.Connection,
    *,
    silent_s: float,
    crash_bound: int,
    message: Callable[[LostJob], NewMessage | None],
) -> Sequence[tuple[LostJob, bool]]:
    """Have those jobs wait again, a begun attempt counted as lost; each with whether it is sent anew.

    A message that comes after all finds its job waiting, and is sent on as the attempt that waits, or is a
    duplicate; of a job that is DEAD at the bound the message becomes its dead letter.

    Args:
        silent_s: seconds since nothing could run any more under the claim.
        message: makes a job's message again; None where it cannot.

    Raises:
        DatabaseAwayError: nothing was changed.
        StatementError: Postgres refuses what was to be written.
    """
    with refusals("look for lost jobs"):
        async with connection.transaction():
            rows = await connection.fetch(_GIVE_UP, crash_bound, silent_s, BATCH, timeout=TIMEOUT_S)
            jobs = await _with_replays(connection, [LostJob(**dict(row)) for row in rows])
            if jobs and await has_table(connection, "job_options", timeout_s=TIMEOUT_S):
                asked = await job_options.read(connection, [job.id for job in jobs])
                jobs = [
                    replace(job, retry_options=merged(asked.get(job.id), job.retry_options)) for job in jobs
                ]
            # One that was asked to stop is CANCELLED by that: nothing is to run.
            made = [(job, None if job.state == "CANCELLED" else message(job)) for job in jobs]
            sent = [(job.id, new) for job, new in made if new is not None]
            if sent:
                await connection.execute(
                    _SEND,
                    [id_ for id_, _ in sent],
                    [new.queue for _, new in sent],
                    [new.properties for _, new in sent],
                    [new.body for _, new in sent],
                    [new.token for _, new in sent],
                    timeout=TIMEOUT_S,
                )
            return [(job, new is not None) for job, new in made]


async def _with_replays(connection: asyncpg.Connection, jobs: list[LostJob]) -> list[LostJob]:
    later = [job for job in jobs if job.generation > 1]
    if not later:
        return jobs
    ids, generations = [job.id for job in later], [job.generation for job in later]
    rows = await connection.fetch(_REPLAYED, ids, generations, timeout=TIMEOUT_S)
    bodies = {row["id"]: row["body"] for row in rows}
    return [replace(job, replayed=bodies.get(job.id)) for job in jobs]
