"""Postgres from synchronous code: one event loop in a thread, and a small pool on it.

Made after a fork, in the process that uses it: neither loops nor connections survive one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, Generic, TypeVar

import asyncpg

from storage.errors import DRIVER_ERRORS, PoolExhaustedError, translate
from storage.pool import open_pool, watched
from storage.settings import StorageSettings
from storage.silence import IDLE_S, milliseconds

logger = logging.getLogger(__name__)
T = TypeVar("T")
# How long a cancelled statement may take to end before its caller goes on without it, and a connection to
# become clean again before it is dropped.
CANCEL_TIMEOUT_S = 5.0
# How long an effect waits for one of the same key that another process has begun and not ended: that process
# may be stopped or cut off. Then the attempt is given back and comes again, uncounted.
LOCK_TIMEOUT_S = 10.0
# An exception that another thread raises in one that waits is met between two such waits.
SLICE_S = 0.2
_IDLE = "SET idle_in_transaction_session_timeout = '{}'"

# Who borrows a connection: what it left behind is taken back from it by `Database.reclaim`.
borrower: ContextVar[object | None] = ContextVar("redrive_borrower", default=None)
# How long, in seconds, a transaction of the borrower's may wait for its next statement: what it does between
# two of them is its own affair.
pausing: ContextVar[float] = ContextVar("redrive_pausing", default=IDLE_S)


class Running(Generic[T]):
    """A coroutine on its way on a loop in another thread. It sees its caller's context variables."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._scheduled = self._cancelled = False
        self._task: asyncio.Task[T] | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Idempotent: whoever was interrupted here calls it again."""
        if not self._scheduled:
            self._loop.call_soon_threadsafe(self._start)
            self._scheduled = True

    def cancel(self) -> None:
        self._cancelled = True
        self._loop.call_soon_threadsafe(self._cancel)

    def wait(self, timeout_s: float | None = None) -> None:
        """Until it has ended, or for so long."""
        if timeout_s is not None:
            self._ended.wait(timeout_s)
            return
        while not self._ended.wait(SLICE_S):
            pass

    def result(self) -> T:
        """Once it has ended. Raises what it raised, asyncio.CancelledError too."""
        assert self._task is not None
        return self._task.result()

    def _start(self) -> None:
        if self._task is None:
            self._task = self._loop.create_task(self._coroutine)
            self._task.add_done_callback(lambda _: self._ended.set())
            if self._cancelled:
                self._task.cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class LoopThread:
    """An event loop in a daemon thread, for callers that are not async themselves."""

    def __init__(self, name: str, task_factory: Callable[..., Any] | None = None) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_task_factory(task_factory)
        self._stopped = False
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)
        self._thread.start()

    @property
    def here(self) -> bool:
        """Whether the caller runs on the loop itself."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """End the thread and close its loop. What still runs there is abandoned."""
        self._stopped = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end and return the result.

        An exception that hits the caller meanwhile (a soft time limit) cancels the coroutine and waits for
        it, so that it does not go on behind the caller's back.
        """
        if self.here:
            coroutine.close()
            raise RuntimeError("called from the loop itself: it would wait for itself; use the async form")
        running = Running(self.loop, coroutine)
        try:
            running.start()
            running.wait()
        except BaseException:
            running.cancel()
            running.wait(CANCEL_TIMEOUT_S)
            raise
        return running.result()

    def _live(self) -> None:
        while not self._stopped:
            # asyncio lets these two end the loop, besides the task that raised them, whose caller gets them.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()


class Database:
    """A pool that is opened at first use. The async methods are for the loop, the others for everyone else.

    A connection is taken and given back by a task of its own, which no cancelling of the borrower reaches.
    """

    def __init__(
        self, settings: StorageSettings, loop: LoopThread, name: str, *, idle_s: float = IDLE_S
    ) -> None:
        """Args:
        idle_s: how long most transactions may wait for their next statement; for longer: `pausing`.
        """
        self._settings = settings
        self._loop = loop
        self._name = name
        self._idle_s = idle_s
        self._pool: asyncpg.Pool | None = None
        self._opening = asyncio.Lock()
        self._lent: dict[asyncpg.Connection, object | None] = {}
        self._apart: set[asyncio.Task[Any]] = set()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(coroutine)

    def reclaim(self, who: object) -> None:
        """Drop the connections that a borrower has left behind when it ended. Does not wait."""
        if who in tuple(self._lent.values()):
            self._loop.loop.call_soon_threadsafe(self._drop, who)

    async def acquire(self) -> asyncpg.Connection:
        """A connection of the pool; give it back with `release`.

        Raises:
            storage.errors.DatabaseAwayError
            storage.errors.PoolExhaustedError
        """
        taking = self.beside(self._take(borrower.get(), pausing.get()))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(self._unwanted)
            raise

    async def release(self, connection: asyncpg.Connection, transaction: Any = None) -> None:
        """Give it back, clean.

        Args:
            transaction: asyncpg's, if one is still open: it is rolled back.
        """
        await asyncio.shield(self.beside(self._clean(connection, transaction)))

    @contextlib.asynccontextmanager
    async def lend(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection for the block."""
        connection = await self.acquire()
        try:
            yield connection
        finally:
            await self.release(connection)

    def beside(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that outlives whoever starts it, on the loop."""
        task = self._loop.loop.create_task(coroutine, context=Context())
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)
        return task

    async def close(self) -> None:
        """Close the pool's connections; what is used after that opens it again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _take(self, who: object | None, idle_s: float) -> asyncpg.Connection:
        with translate("get a connection"):
            async with self._opening:
                if self._pool is None:
                    self._pool = await open_pool(
                        self._settings, self._name, lock_timeout_s=LOCK_TIMEOUT_S, idle_s=self._idle_s
                    )
            try:
                connection: Any = await self._pool.acquire(timeout=self._settings.database_timeout_s)
            except TimeoutError:
                self._refuse_if_all_are_lent_to(who)
                raise
            if idle_s > self._idle_s:
                await self._be_patient(connection, idle_s)
        self._lent[connection] = who
        return connection  # type: ignore[no-any-return]  # the pool's proxy of a Connection

    async def _be_patient(self, connection: Any, idle_s: float) -> None:
        """Until it is given back."""
        try:
            with watched(connection, self._settings.database_timeout_s):
                await connection.execute(_IDLE.format(milliseconds(idle_s)))
        except BaseException:
            await self._back(connection)
            raise

    def _refuse_if_all_are_lent_to(self, who: object | None) -> None:
        most, owners = self._settings.database_pool_max, list(self._lent.values())
        if len(owners) >= most and all(owner is who for owner in owners):
            raise PoolExhaustedError(
                f"this job holds all {most} connections of its process and asks for another: nest less"
            )

    async def _clean(self, connection: asyncpg.Connection, transaction: Any = None) -> None:
        if connection not in self._lent:  # reclaimed meanwhile
            return
        del self._lent[connection]
        if transaction is not None:
            try:
                if not connection.is_closed():
                    async with asyncio.timeout(CANCEL_TIMEOUT_S):
                        await transaction.rollback()
            except DRIVER_ERRORS:  # TimeoutError is one of them
                _terminate(connection)
        await self._back(connection)

    async def _back(self, connection: asyncpg.Connection) -> None:
        assert self._pool is not None
        with contextlib.suppress(*DRIVER_ERRORS):  # it is lost: the pool makes another
            # The pool resets it, and drops it if that takes longer.
            await self._pool.release(connection, timeout=CANCEL_TIMEOUT_S)  # type: ignore[arg-type]  # see _take

    def _unwanted(self, taking: asyncio.Task[asyncpg.Connection]) -> None:
        if not taking.cancelled() and taking.exception() is None:
            self.beside(self._clean(taking.result()))

    def _drop(self, who: object) -> None:
        for connection in [each for each, owner in self._lent.items() if owner is who]:
            logger.warning("a connection was left behind", extra={"action": "connection_reclaimed"})
            del self._lent[connection]
            _terminate(connection)
            self.beside(self._back(connection))


def _terminate(connection: asyncpg.Connection) -> None:
    # One that was lost has gone back to asyncpg's pool by itself, and what we hold refuses every call.
    with contextlib.suppress(asyncpg.InterfaceError):
        connection.terminate()
