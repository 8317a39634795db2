"""Jobs of several callers accepted by one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from storage import jobs
from storage.audit import Submitting
from storage.errors import translate
from storage.jobs import Accepted, IdempotencyKey, NewJob
from storage.pool import AnyConnection

# Keys are inserted in one order by everyone, so that two of these wait for each other instead of deadlocking;
# the outbox keeps the order of arrival.
_SUBMIT = """
WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::bytea[],
                         $8::text[], $9::bytea[], $10::bytea[], $11::text[],
                         $12::text[], $13::text[], $14::text[], $15::text[])
        WITH ORDINALITY AS w (scope, key, request, id, type, queue, payload, principal, properties, body,
                              token, by, key_id, came_from, operation, place)
), key AS (
    INSERT INTO redrive.idempotency_keys (scope, key, request, job_id)
    SELECT scope, key, request, id FROM wanted ORDER BY scope, key, place
    ON CONFLICT (scope, key) DO NOTHING
    RETURNING job_id
), job AS (
    INSERT INTO redrive.jobs (id, type, queue, payload, principal)
    SELECT w.id, w.type, w.queue, w.payload, w.principal FROM wanted w JOIN key ON key.job_id = w.id
    RETURNING *
), message AS (
    INSERT INTO redrive.outbox (job_id, queue, properties, body, token)
    SELECT w.id, w.queue, w.properties, w.body, w.token
    FROM wanted w JOIN key ON key.job_id = w.id ORDER BY w.place
), told AS (
    INSERT INTO redrive.audit (by, key_id, came_from, operation, submission, targets, status, ended_at)
    SELECT w.by, w.key_id, w.came_from, w.operation, true, ARRAY[w.id], 202, now()
    FROM wanted w JOIN key ON key.job_id = w.id ORDER BY w.place
)
SELECT * FROM job
"""
_OF_KEY = ("scope", "key", "request")
_OF_JOB = ("id", "type", "queue", "payload", "principal", "properties", "body", "token")


class Submission(NamedTuple):
    """One job, its key, and what the record says of its caller."""

    new: NewJob
    key: IdempotencyKey
    told: Submitting


async def submit(db: AnyConnection, wanted: Sequence[Submission]) -> dict[str, Accepted]:
    """Accept those whose keys are new, with row, message, key and record; by id. All or none are committed.

    The others, as well as all but the first of those that share a key, are to be asked for one by one; on the
    schema of the release before, which has no record of changes, all.

    Raises:
        DatabaseAwayError: nothing is known to be stored; the same may be sent again.
    """
    assert not any(each.new.options or each.new.callback for each in wanted)
    with translate(f"submit {len(wanted)} jobs"):
        try:
            rows = await db.fetch(
                _SUBMIT,
                *([getattr(each.key, name) for each in wanted] for name in _OF_KEY),
                *([getattr(each.new, name) for each in wanted] for name in _OF_JOB),
                *map(list, zip(*(each.told.column for each in wanted), strict=True)),
            )
        except asyncpg.UndefinedTableError:
            return {}
    return {row["id"]: Accepted(jobs.from_row(row), replayed=False) for row in rows}
