"""Who drains what: advisory locks on one connection, and a numbered session for each time one is taken."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from storage import silence
from storage.errors import DRIVER_ERRORS, DatabaseAwayError, StorageError, translate
from storage.pool import AnyConnection, connect, watched
from storage.settings import StorageSettings

# Often enough that a network that swallows packets is noticed before another consumer is far ahead.
HEARTBEAT_S = 5.0

_TRY = "SELECT pg_try_advisory_lock($1)"
_UNLOCK = "SELECT pg_advisory_unlock($1)"
# The row locks of the batches (see `hold`) make this wait for a batch that the previous holder is committing.
_END_OTHERS = (
    "UPDATE redrive.drain_sessions SET ended_at = now()"
    " WHERE cluster = $1 AND vhost = $2 AND queue = $3 AND ended_at IS NULL"
)
# The other queues' turns on this connection come first.
_PATIENCE = "SET LOCAL lock_timeout = '200ms'"
_START = """
INSERT INTO redrive.drain_sessions (cluster, vhost, queue, consumer) VALUES ($1, $2, $3, $4) RETURNING id
"""
_END = "UPDATE redrive.drain_sessions SET ended_at = now() WHERE id = $1 AND ended_at IS NULL"
_HOLD = "SELECT true FROM redrive.drain_sessions WHERE id = $1 AND ended_at IS NULL FOR SHARE"


class SessionLostError(StorageError):
    """Another consumer has taken over this queue: what was delivered here must not be stored any more."""


@dataclass(frozen=True)
class Source:
    """A queue on a broker. `cluster` is the name that the broker gives itself."""

    cluster: str
    vhost: str
    queue: str

    @property
    def lock(self) -> int:
        return _lock_number("drain", self.cluster, self.vhost, self.queue)

    def __str__(self) -> str:
        return f"{self.cluster} {self.vhost} {self.queue}"


@dataclass(frozen=True)
class Session:
    """One holding of one queue's lock."""

    id: int
    source: Source


class Locks:
    """Advisory locks and notifications on a connection of their own.

    All locks go with the connection; `lost` is then set, and the holder must stop consuming. Postgres ends it
    when `watch` has said nothing for `SILENT_S`: who is frozen, or whose host is gone, keeps nothing.
    """

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._turn = asyncio.Lock()
        self.lost = asyncio.Event()
        connection.add_termination_listener(lambda _: self.lost.set())

    async def take_queue(self, source: Source, consumer: str) -> Session | None:
        """A new session, or None while another consumer holds the queue, or still commits its last batch.

        Raises:
            DatabaseAwayError: the connection is gone.
        """
        if not await self.take(source.lock):
            return None
        names = (source.cluster, source.vhost, source.queue)
        try:
            async with self._one("start a drain session") as connection, connection.transaction():
                await connection.execute(_PATIENCE)
                await connection.execute(_END_OTHERS, *names)
                return Session(int(await connection.fetchval(_START, *names, consumer)), source)
        except BaseException as error:
            await self.release(source.lock)
            if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                return None
            raise

    async def release_queue(self, session: Session) -> None:
        """End a session. Does nothing when the connection is gone, since the lock is gone with it."""
        with contextlib.suppress(DatabaseAwayError):
            async with self._one("end a drain session") as connection:
                await connection.execute(_END, session.id)
            await self.release(session.source.lock)

    async def take_replay(self, replay_id: str) -> bool:
        """Whether this process is now the only one that carries out this plan."""
        return await self.take(_lock_number("replay", replay_id))

    async def release_replay(self, replay_id: str) -> None:
        with contextlib.suppress(DatabaseAwayError):
            await self.release(_lock_number("replay", replay_id))

    async def take(self, number: int) -> bool:
        async with self._one("take a lock") as connection:
            return bool(await connection.fetchval(_TRY, number))

    async def release(self, number: int) -> None:
        async with self._one("release a lock") as connection:
            await connection.execute(_UNLOCK, number)

    async def listen(self, channel: str, wake: Callable[[], None]) -> None:
        """Call `wake` on each notification of `channel`."""
        async with self._one(f"listen to {channel}") as connection:
            await connection.add_listener(channel, lambda *_: wake())

    async def watch(self) -> None:
        """Ask the connection for a sign of life until it gives none; then set `lost` and return."""
        while not self.lost.is_set():
            try:
                with watched(self._connection, 2 * HEARTBEAT_S):
                    async with self._one("keep the locks") as connection:
                        await connection.fetchval("SELECT 1")
            except DatabaseAwayError:
                self.lost.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.lost.wait(), HEARTBEAT_S)

    @asynccontextmanager
    async def _one(self, what: str) -> AsyncIterator[asyncpg.Connection]:
        async with self._turn:
            with translate(what):
                yield self._connection


@asynccontextmanager
async def open_locks(settings: StorageSettings, name: str) -> AsyncIterator[Locks]:
    """A lock connection, closed at the end.

    Raises:
        DatabaseAwayError: it cannot be opened.
    """
    with translate("open the lock connection"):
        connection = await connect(settings, name, silent_s=silence.SILENT_S)
    try:
        yield Locks(connection)
    finally:
        try:
            await connection.close(timeout=2)
        except DRIVER_ERRORS:
            connection.terminate()


async def hold(connection: AnyConnection, session: Session) -> None:
    """Keep `session` from being ended until the end of this transaction.

    Raises:
        SessionLostError: it has been ended: another consumer may already store the same letters.
    """
    if await connection.fetchval(_HOLD, session.id) is None:
        raise SessionLostError(f"session {session.id} of queue {session.source.queue} was taken over")


def _lock_number(*names: str) -> int:
    digest = hashlib.sha256("\x00".join(("redrive", *names)).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
