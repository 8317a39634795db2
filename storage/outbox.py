"""The outbox: messages of accepted jobs, until the broker has confirmed them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import NoReturn

from storage.errors import DRIVER_ERRORS, translate
from storage.pool import AnyConnection, Pool, Say, connect, watched
from storage.settings import StorageSettings
from storage.text import safe_text
from storage.times import shown_time

CHANNEL = "redrive_outbox"
LISTEN_AGAIN_S = 1.0

# SKIP LOCKED: several relays share the outbox. The rows stay locked until the broker has answered.
TAKE = """
SELECT id, job_id, queue, properties, body, token, tries FROM redrive.outbox
WHERE not_before <= now() AND queue <> ALL ($1::text[])
ORDER BY not_before, id
LIMIT $2
FOR UPDATE SKIP LOCKED
"""
# The job may already run, since the broker had its message before this: the guard leaves it alone. A job row
# that is locked now is being claimed; waiting for it could deadlock with the worker's batch.
CONFIRMED = """
WITH gone AS (
    DELETE FROM redrive.outbox WHERE id = ANY ($1::bigint[]) RETURNING job_id
), waiting AS (
    SELECT j.id FROM redrive.jobs j JOIN gone ON gone.job_id = j.id
    WHERE j.state = 'PENDING'
    FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE redrive.jobs SET state = 'QUEUED', queued_at = now()
FROM waiting WHERE jobs.id = waiting.id
"""
REFUSED = """
UPDATE redrive.outbox
SET tries = tries + 1, last_error = refused.error, not_before = now() + make_interval(secs => refused.wait_s)
FROM unnest($1::bigint[], $2::text[], $3::float8[]) AS refused (id, error, wait_s)
WHERE outbox.id = refused.id
"""

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


@dataclass(frozen=True)
class OutboxRow:
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
    _connection: AnyConnection
    _timeout_s: float

    async def settle(self, confirmed: Collection[int], refused: Sequence[Refused]) -> None:
        """Record what the broker answered. Rows in neither list stay as they were."""
        with watched(self._connection, self._timeout_s):
            if confirmed:
                await self._connection.execute(CONFIRMED, list(confirmed))
            if refused:
                await self._connection.execute(
                    REFUSED,
                    [row.id for row in refused],
                    [safe_text(row.error, 500) for row in refused],
                    [row.wait_s for row in refused],
                )


@asynccontextmanager
async def take(
    pool: Pool, limit: int, without: Collection[str] = (), *, timeout_s: float = 5.0
) -> AsyncIterator[Batch]:
    """The `limit` oldest due rows but for the queues `without`; what was settled is committed at the end.

    A crash inside leaves every row in place: what was published is then published again, and the
    job's claim takes the second one for a duplicate. `timeout_s` bounds the database's part, not the
    broker's.

    Raises:
        DatabaseAwayError: nothing was recorded.
    """
    with translate("relay the outbox"):
        async with pool.acquire(timeout=timeout_s) as connection:
            transaction = connection.transaction()
            with watched(connection, timeout_s):
                await transaction.start()
                rows = await connection.fetch(TAKE, list(without), limit)
            try:
                yield Batch(tuple(OutboxRow(**row) for row in rows), connection, timeout_s)
            except BaseException:
                # A connection that is gone has rolled back by itself, and the first error is the one to tell.
                with contextlib.suppress(*DRIVER_ERRORS), watched(connection, timeout_s):
                    await transaction.rollback()
                raise
            with watched(connection, timeout_s):
                await transaction.commit()


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
