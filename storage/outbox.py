"""The outbox: messages of accepted jobs, until the broker has confirmed them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, NoReturn

from storage.errors import DRIVER_ERRORS, translate
from storage.pool import AnyConnection, Pool, Say, connect, watched
from storage.settings import StorageSettings
from storage.text import safe_text
from storage.times import shown_time

CHANNEL = "redrive_outbox"
LISTEN_AGAIN_S = 1.0

# Bytes of messages in one batch; the one that crosses it still goes along.
BATCH_BYTES = 16 * 1024 * 1024
# Where others have locked the first of a queue, so many times a batch are looked through.
AHEAD = 8
# A plan that was made while tables were empty reads all of them for a batch, and is kept while they fill.
BEGIN = "BEGIN; SET LOCAL enable_seqscan = off"
# SKIP LOCKED: several relays share the outbox. The rows stay locked until the broker has answered, also the
# few that are over the bytes: those come with the next batch of this relay. Arrays of ids: by a join the
# whole table was read where the server knew nothing of it.
_TAKE = """
WITH {places} due AS MATERIALIZED (
    SELECT o.id, o.not_before, octet_length(o.properties) + octet_length(o.body) AS size
    FROM redrive.outbox o WHERE {due} ORDER BY o.not_before, o.id LIMIT $2 FOR UPDATE OF o SKIP LOCKED),
sized AS (SELECT id, sum(size) OVER (ORDER BY not_before, id) - size AS bytes_before FROM due)
SELECT o.id, o.job_id, o.queue, o.properties, o.body, o.token, o.tries,
       (SELECT count(*) FROM due) AS taken
FROM redrive.outbox o WHERE o.id = ANY (ARRAY(SELECT id FROM sized WHERE bytes_before < $3))
ORDER BY o.not_before, o.id
"""
TAKE = _TAKE.format(places="", due="o.not_before <= now() AND o.queue <> ALL ($1::text[])")
# While queues are left out: each of the others by its own index, since what is left out may be a million
# messages that lie before. A queue's name is found by the one before it.
TAKE_WITHOUT = _TAKE.format(
    places=f"""RECURSIVE queues AS (
    (SELECT queue FROM redrive.outbox ORDER BY queue LIMIT 1)
    UNION ALL SELECT (SELECT o.queue FROM redrive.outbox o WHERE o.queue > q.queue ORDER BY o.queue LIMIT 1)
    FROM queues q WHERE q.queue IS NOT NULL),
places AS (
    SELECT o.id FROM queues q CROSS JOIN LATERAL (
        SELECT e.id, e.not_before FROM redrive.outbox e WHERE e.queue = q.queue AND e.not_before <= now()
        ORDER BY e.not_before, e.id LIMIT $2 * {AHEAD}) AS o
    WHERE q.queue <> ALL ($1::text[]) ORDER BY o.not_before, o.id LIMIT $2 * {AHEAD}),""",  # noqa: S608 - a number of ours
    due="o.id = ANY (ARRAY(SELECT id FROM places))",
)
# The job may already run, since the broker had its message before this: the guard leaves it alone. A job row
# that is locked now is being claimed; waiting for it could deadlock with the worker's batch. Each is found by
# itself, and updated where it was found: by a join, or the index of states, all PENDING jobs were read, which
# after an outage may be a million. One that is locked, or was changed since this began, is told instead.
CONFIRMED = """
WITH gone AS (
    DELETE FROM redrive.outbox WHERE id = ANY ($1::bigint[]) RETURNING job_id
), waiting AS (
    SELECT found.place FROM gone CROSS JOIN LATERAL (
        SELECT ctid AS place FROM redrive.jobs WHERE id = gone.job_id AND state || '' = 'PENDING'
        FOR NO KEY UPDATE SKIP LOCKED) AS found
), queued AS (
    UPDATE redrive.jobs SET state = 'QUEUED', queued_at = now()
    WHERE ctid = ANY (ARRAY(SELECT place FROM waiting)) RETURNING id
), others AS MATERIALIZED (
    SELECT job_id FROM gone WHERE job_id NOT IN (SELECT id FROM queued)
)
SELECT o.job_id FROM others o CROSS JOIN LATERAL (
    SELECT FROM redrive.jobs WHERE id = o.job_id AND state || '' = 'PENDING') AS pending
"""
REFUSED = """
UPDATE redrive.outbox
SET tries = tries + 1, last_error = refused.error, not_before = now() + make_interval(secs => refused.wait_s)
FROM unnest($1::bigint[], $2::text[], $3::float8[]) AS refused (id, error, wait_s)
WHERE outbox.id = refused.id
"""

# A process that is frozen, or whose host has lost its power, would keep its rows from every other relay: for
# hours, until the network tells.
_IDLE = "SET LOCAL idle_in_transaction_session_timeout"

OF_JOB = """
SELECT not_before, tries, last_error FROM redrive.outbox WHERE job_id = $1 ORDER BY id DESC LIMIT 1
"""


@dataclass(frozen=True)
class Unsent:
    """A message that the broker has not confirmed: published from `not_before` on, again after `tries`."""

    not_before: datetime
    tries: int
    last_error: str | None

    def as_json(self) -> dict[str, object]:
        return vars(self) | {"not_before": shown_time(self.not_before)}


async def of_job(db: AnyConnection, job_id: str) -> Unsent | None:
    """The message of a job, while it is in the outbox.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate(f"look for job {job_id!r} in the outbox"):
        row = await db.fetchrow(OF_JOB, job_id)
    return None if row is None else Unsent(**dict(row))


class OutboxRow(NamedTuple):
    """A message to publish: raw AMQP `properties`, `body`, and the `token` that its publish is known by."""

    id: int
    job_id: str
    queue: str
    properties: bytes
    body: bytes
    token: str
    tries: int


@dataclass(frozen=True)
class Refused:
    """The broker refused the message of outbox row `id`; try again in `wait_s` seconds."""

    id: int
    error: str
    wait_s: float


@dataclass(frozen=True)
class Batch:
    """Rows that this relay alone holds, inside an open transaction."""

    rows: tuple[OutboxRow, ...]
    more: bool  # may be due
    _connection: AnyConnection
    _timeout_s: float

    async def settle(self, confirmed: Collection[int], refused: Sequence[Refused]) -> list[str]:
        """Record what the broker answered. Rows in neither list stay as they were.

        Returns the jobs that may still be PENDING, since somebody had their rows: for `late_confirms`.
        """
        late: list[str] = []
        with watched(self._connection, self._timeout_s):
            if confirmed:
                rows = await self._connection.fetch(CONFIRMED, list(confirmed))
                late = [row["job_id"] for row in rows]
            if refused:
                await self._connection.execute(
                    REFUSED,
                    [row.id for row in refused],
                    [safe_text(row.error, 500) for row in refused],
                    [row.wait_s for row in refused],
                )
        return late


@asynccontextmanager
async def take(
    pool: Pool, limit: int, without: Collection[str] = (), *, timeout_s: float = 5.0, idle_s: float = 60.0
) -> AsyncIterator[Batch]:
    """The `limit` oldest due rows but for the queues `without`, or as many as `BATCH_BYTES` allow; what was
    settled is committed at the end.

    A crash inside leaves every row in place: what was published is then published again, and the
    job's claim takes the second one for a duplicate. `timeout_s` bounds the database's part, not the
    broker's, which `idle_s` bounds: then Postgres gives the rows to another relay.

    Raises:
        DatabaseAwayError: nothing was recorded.
    """
    with translate("relay the outbox"):
        async with pool.acquire(timeout=timeout_s) as connection:
            with watched(connection, timeout_s):
                await connection.execute(f"{BEGIN}; {_IDLE} = {idle_s * 1000:.0f}")
                take = TAKE_WITHOUT if without else TAKE
                rows = await connection.fetch(take, list(without), limit, BATCH_BYTES)
            found = tuple(OutboxRow(*tuple(row)[:-1]) for row in rows)
            taken = rows[0]["taken"] if rows else 0
            try:
                yield Batch(found, taken == limit or taken > len(rows), connection, timeout_s)
            except BaseException:
                # A connection that is gone has rolled back by itself, and the first error is the one to tell.
                with contextlib.suppress(*DRIVER_ERRORS), watched(connection, timeout_s):
                    await connection.execute("ROLLBACK")
                raise
            with watched(connection, timeout_s):
                await connection.execute("COMMIT")


async def tell_relays(db: AnyConnection, teller: str) -> None:
    """Wake the relays of all other processes. `teller` names this one.

    Raises:
        DatabaseAwayError: they find the rows by themselves, a little later.
    """
    with translate("wake the relays"):
        await db.execute("SELECT pg_notify($1, $2)", CHANNEL, teller)


async def listen_forever(
    settings: StorageSettings, name: str, wake: Callable[[], None], me: str, say: Say
) -> NoReturn:
    """Call `wake` whenever another process than `me` tells the relays; over again after a lost connection.

    Why it cannot listen is said once, and again when it could meanwhile or the reason is another.
    """
    said = ""
    while True:
        lost = asyncio.Event()
        try:
            connection = await connect(settings, name)
            try:
                connection.add_termination_listener(lambda _, lost=lost: lost.set())
                await connection.add_listener(CHANNEL, lambda *event: None if event[-1] == me else wake())
                wake()  # for what was told before we listened
                said = ""
                await lost.wait()
            finally:
                connection.terminate()
        except DRIVER_ERRORS as error:
            reason = f"{error or 'no answer'} ({type(error).__name__})"
            if reason != said:
                said = reason
                say(f"not told of other processes' jobs, found only by looking: {reason}")
        await asyncio.sleep(LISTEN_AGAIN_S)
