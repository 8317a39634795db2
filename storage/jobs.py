"""Jobs as their submitters see them: accepted once per idempotency key, and read with their attempts."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple

import asyncpg

from storage import audit, job_callbacks, job_options
from storage.attempts import AttemptRow, of_jobs
from storage.audit import SUBMITTED, Submitting
from storage.errors import StorageError, translate
from storage.job_callbacks import JobCallback
from storage.job_options import JobOptions
from storage.pool import AnyConnection
from storage.schema import has_table

# One statement, so one transaction and one round trip. A concurrent insert of the same key is waited for
# (ON CONFLICT waits for the other transaction's end), so that the loser finds the winner's row.
_SUBMIT = """
WITH {wanted}key AS (
    INSERT INTO redrive.idempotency_keys (scope, key, request, job_id) VALUES ($1, $2, $3, $4)
    ON CONFLICT (scope, key) DO NOTHING
    RETURNING job_id
), job AS (
    INSERT INTO redrive.jobs (id, type, queue, payload, principal)
    SELECT job_id, $5, $6, $7, $8 FROM key
    RETURNING *
), message AS (
    {message}
){noted}
SELECT * FROM job
"""
_PLAIN = partial(
    _SUBMIT.format,
    wanted="",
    message="""INSERT INTO redrive.outbox (job_id, queue, properties, body, token)
    SELECT id, queue, $9, $10, $11 FROM job""",
)
_WITH_OPTIONS = partial(
    _SUBMIT.format,
    wanted="""wanted AS (
    SELECT $4::text AS id, $12::float8 AS delay_s, $13::timestamptz AS not_before,
           $14::timestamptz AS expires, $15::int AS priority
), """,
    message=f"""INSERT INTO redrive.outbox (job_id, queue, properties, body, token, created_at, not_before)
    SELECT job.id, queue, $9, $10, $11, {job_options.DUE}, {job_options.DUE}
    FROM job JOIN wanted w ON w.id = job.id
), options AS ({job_options.INSERT}""",  # noqa: S608 - constants
)
# Each without its row of the audit, for the schema of the release before, and with it.
_STATEMENTS = {
    options: (submit(noted=""), submit(noted=f", noted AS ({SUBMITTED.format(told=told)})"))
    for options, submit, told in ((False, _PLAIN, "$12"), (True, _WITH_OPTIONS, "$16"))
}
BY_KEY = """
SELECT k.request AS key_request, j.*
FROM redrive.idempotency_keys k JOIN redrive.jobs j ON j.id = k.job_id
WHERE k.scope = $1 AND k.key = $2
"""
# Of a DEAD job: a replay of its letter is not over.
_REPLAYING = """j.state = 'DEAD'
    AND EXISTS (SELECT FROM redrive.dead_letters l WHERE l.id = j.letter_id AND l.state = 'replaying')"""
_MARKS = f"""
SELECT j.id, j.generation, j.attempt, j.state, left(encode(sha256(j.progress), 'hex'), 8) AS progress,
       {_REPLAYING} AS replaying
FROM redrive.jobs j WHERE j.id = ANY ($1::text[])
"""  # noqa: S608
_LOOK = f"SELECT j.*, {_REPLAYING} AS replaying FROM redrive.jobs j WHERE j.id = $1"  # noqa: S608
FIND = "SELECT * FROM redrive.jobs WHERE id = $1"


class IdempotencyConflictError(StorageError):
    """The key was used before, for another request."""


class NewJob(NamedTuple):
    """A job to be accepted, and the message that will run it.

    `payload` is UTF-8 JSON as it was given; `properties` and `body` are the message's raw bytes, and
    `token` is what its publish is known by.
    """

    id: str
    type: str
    queue: str
    payload: bytes
    principal: str
    properties: bytes
    body: bytes
    token: str
    options: JobOptions | None = None
    callback: JobCallback | None = None


class IdempotencyKey(NamedTuple):
    """`scope` is principal and route; `request` a digest of what was asked."""

    scope: str
    key: str
    request: bytes


@dataclass(frozen=True)
class Job:
    """A row of `redrive.jobs`. `payload` and `result` are UTF-8 JSON; Python's NaN may stand in `result`."""

    id: str
    type: str
    queue: str
    state: str
    generation: int
    attempt: int
    origin: str
    principal: str | None
    payload: bytes | None
    progress: bytes | None
    result: bytes | None
    reason: str | None
    error: str | None
    letter_id: int | None
    created_at: datetime
    queued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None

    def mark(self, *, replaying: bool = False) -> str:
        """Another one after each change that people wait for, such as `1.2.RUNNING`."""
        digest = None if self.progress is None else hashlib.sha256(self.progress).hexdigest()[:8]
        return _mark(self.generation, self.attempt, self.state, digest, replaying)


@dataclass(frozen=True)
class Accepted:
    """The job of a submission. `replayed`: it had been accepted by an earlier, equal request."""

    job: Job
    replayed: bool


async def submit(
    db: AnyConnection, new: NewJob, key: IdempotencyKey, told: Submitting | None = None
) -> Accepted:
    """Accept a job: its row, its outbox row and its key are committed together, or none is.

    An equal request that runs at the same time is waited for; both get the same job.

    Raises:
        IdempotencyConflictError: the key was used for another request.
        MigrationError: the job has options or a callback, and the schema does not know them yet.
        DatabaseAwayError: nothing is known to be stored; the same request may be sent again.
    """
    with translate(f"submit job {new.id}"):
        if new.options is not None:
            await job_options.require(db)
        if new.callback is None:
            return await _submit(db, new, key, told)
        if not await has_table(db, audit.TABLE):
            told = None  # to find that out by an error would end the transaction
        async with db.transaction():
            accepted = await _submit(db, new, key, told)
            if not accepted.replayed:
                await job_callbacks.attach(db, [(new.id, new.callback)])
            return accepted


async def _submit(db: AnyConnection, new: NewJob, key: IdempotencyKey, told: Submitting | None) -> Accepted:
    without, with_row = _STATEMENTS[new.options is not None]
    noted: list[object] = [] if told is None else [told.column]
    while True:
        row = await _first_row(
            db,
            without,
            with_row if noted else None,
            key.scope,
            key.key,
            key.request,
            new.id,
            new.type,
            new.queue,
            new.payload,
            new.principal,
            new.properties,
            new.body,
            new.token,
            *(() if new.options is None else new.options.columns),
            noted=noted,
        )
        if row is not None:
            return Accepted(from_row(row), replayed=False)
        earlier = await db.fetchrow(BY_KEY, key.scope, key.key)
        if earlier is None:
            continue  # the earlier key was deleted between the two statements: it is ours now
        if earlier["key_request"] != key.request:
            raise IdempotencyConflictError(
                f"the idempotency key was used for job {earlier['id']} with another type, payload or option"
            )
        return Accepted(from_row(earlier), replayed=True)


async def _first_row(
    db: AnyConnection, without: str, with_row: str | None, *values: object, noted: list[object]
) -> asyncpg.Record | None:
    if with_row is not None:
        try:
            return await db.fetchrow(with_row, *values, *noted)
        except asyncpg.UndefinedTableError:
            pass  # the release before keeps no such record
    return await db.fetchrow(without, *values)


async def find(db: AnyConnection, job_id: str) -> Job | None:
    """The job, or None.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate(f"read job {job_id!r}"):
        row = await db.fetchrow(FIND, job_id)
    return None if row is None else from_row(row)


async def look(db: AnyConnection, job_id: str) -> tuple[Job, bool] | None:
    """The job, and whether it is DEAD and a replay of its letter is not over: then it has not ended for good.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate(f"read job {job_id!r}"):
        row = await db.fetchrow(_LOOK, job_id)
    return None if row is None else (from_row(row), row["replaying"])


async def marks(db: AnyConnection, ids: Collection[str]) -> dict[str, str]:
    """The marks of those jobs that are there.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate(f"look at {len(ids)} jobs"):
        rows = await db.fetch(_MARKS, list(ids))
    return {row["id"]: _mark(*list(row.values())[1:]) for row in rows}


async def attempts(db: AnyConnection, job_id: str) -> tuple[AttemptRow, ...]:
    """Every attempt of a job, oldest first.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate(f"read the attempts of job {job_id!r}"):
        return (await of_jobs(db, (job_id,))).get(job_id, ())


def _mark(generation: int, attempt: int, state: str, progress: str | None, replaying: bool) -> str:
    parts = (f"{generation}.{attempt}.{state}", progress, "replaying" if replaying else None)
    return ".".join(filter(None, parts))


def from_row(row: asyncpg.Record) -> Job:
    """Of a row with all columns."""
    return Job(**{name: row[name] for name in Job.__dataclass_fields__})
