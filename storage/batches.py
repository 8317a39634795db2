"""Many jobs accepted at once: rows, messages and keys of all of them are committed together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

from storage import audit, job_callbacks, job_options
from storage.audit import SUBMITTED, Submitting
from storage.errors import translate
from storage.job_options import NO_OPTIONS
from storage.jobs import IdempotencyKey, NewJob
from storage.pool import AnyConnection
from storage.schema import has_table

# Keys are inserted in one order by everyone, so that two batches with the same keys wait for each other
# instead of deadlocking; the outbox keeps the order of the batch.
_SUBMIT = """
WITH wanted AS (
    SELECT * FROM unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::text[],
                         $9::bytea[], $10::bytea[], $11::text[]{option_arrays})
        WITH ORDINALITY AS w (key, request, id, type, queue, payload, principal, properties, body, token,
                              {option_names}place)
), key AS (
    INSERT INTO redrive.idempotency_keys (scope, key, request, job_id)
    SELECT $1, key, request, id FROM wanted ORDER BY key, place
    ON CONFLICT (scope, key) DO NOTHING
    RETURNING job_id
), job AS (
    INSERT INTO redrive.jobs (id, type, queue, payload, principal)
    SELECT w.id, w.type, w.queue, w.payload, w.principal FROM wanted w JOIN key ON key.job_id = w.id
    RETURNING id
), message AS (
    INSERT INTO redrive.outbox (job_id, queue, properties, body, token, created_at, not_before)
    SELECT w.id, w.queue, w.properties, w.body, w.token, {due}, {due}
    FROM wanted w JOIN key ON key.job_id = w.id ORDER BY w.place
){options}{noted}
SELECT job_id FROM key
"""
# What a batch has whose jobs have no options is not sent, nor worked out for each of them.
_PLAIN = {"option_arrays": "", "option_names": "", "due": "now()", "options": ""}
_WITH_OPTIONS = {
    "option_arrays": ", $12::float8[], $13::timestamptz[], $14::timestamptz[], $15::int[]",
    "option_names": "delay_s, not_before, expires, priority, ",
    "due": job_options.DUE,
    "options": f", options AS ({job_options.INSERT})",
}


def _statements(parts: Mapping[str, str], told: str) -> tuple[str, str]:
    """Not put on record, and put on record."""
    noted = f", noted AS ({SUBMITTED.format(told=told)})"
    return _SUBMIT.format(**parts, noted=""), _SUBMIT.format(**parts, noted=noted)


# By whether there are options.
_STATEMENTS = {False: _statements(_PLAIN, "$12"), True: _statements(_WITH_OPTIONS, "$16")}
_OF_JOB = ("id", "type", "queue", "payload", "principal", "properties", "body", "token")
_BY_KEYS = """
SELECT key, request, job_id FROM redrive.idempotency_keys WHERE scope = $1 AND key = ANY ($2::text[])
"""


@dataclass(frozen=True)
class BatchedJob:
    """What became of one job of a batch.

    `replayed`: an earlier, equal request had made it. `conflict`: its key was used for another request, by
    the job named here; nothing was stored.
    """

    job_id: str
    replayed: bool
    conflict: bool = False


async def submit(
    db: AnyConnection,
    scope: str,
    wanted: Sequence[tuple[NewJob, IdempotencyKey]],
    told: Submitting | None = None,
) -> list[BatchedJob]:
    """Accept jobs, each under its key, in one transaction; what became of each, in their order.

    Equal requests that run at the same time are waited for. A key that comes twice in the batch is used once.

    Args:
        scope: of every key.

    Raises:
        MigrationError: a job has options or a callback, and the schema does not know them yet.
        DatabaseAwayError: nothing is known to be stored; the same batch may be sent again.
    """
    made: set[str] = set()
    earlier: dict[str, asyncpg.Record] = {}
    with translate(f"submit {len(wanted)} jobs"):
        async with db.transaction():
            left, options = list(wanted), any(job.options is not None for job, _ in wanted)
            if options:
                await job_options.require(db)
            noted = [told.column] if told is not None and await has_table(db, audit.TABLE) else []
            statement = _STATEMENTS[options][bool(noted)]
            while left:
                rows = await db.fetch(statement, scope, *_columns(left, options), *noted)
                made |= {row["job_id"] for row in rows}
                keys = [key.key for job, key in left if job.id not in made]
                found = await db.fetch(_BY_KEYS, scope, keys) if keys else []
                earlier |= {row["key"]: row for row in found}
                # A key that was deleted between the two statements is free now.
                left = [(job, key) for job, key in left if job.id not in made and key.key not in earlier]
            if callbacks := [(job.id, job.callback) for job, _ in wanted if job.callback and job.id in made]:
                await job_callbacks.attach(db, callbacks)
    return [_became(job, key, made, earlier) for job, key in wanted]


def _became(
    job: NewJob, key: IdempotencyKey, made: set[str], earlier: Mapping[str, asyncpg.Record]
) -> BatchedJob:
    if job.id in made:
        return BatchedJob(job.id, replayed=False)
    row = earlier[key.key]
    same = row["request"] == key.request
    return BatchedJob(row["job_id"], replayed=same, conflict=not same)


def _columns(wanted: Sequence[tuple[NewJob, IdempotencyKey]], options: bool) -> list[Sequence[object]]:
    of_options = ((job.options or NO_OPTIONS).columns for job, _ in wanted) if options else ()
    return [
        [key.key for _, key in wanted],
        [key.request for _, key in wanted],
        *([getattr(job, name) for job, _ in wanted] for name in _OF_JOB),
        *zip(*of_options, strict=True),
    ]
