"""Postgres from synchronous code: one event loop in a thread, and a small pool on it.

Made after a fork, in the process that uses it: neither loops nor connections survive one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg

from storage.errors import translate
from storage.pool import open_pool
from storage.settings import StorageSettings

T = TypeVar("T")
# How long a cancelled statement may take to end before its caller goes on without it.
CANCEL_TIMEOUT_S = 5.0
# How long an effect waits for one of the same key that another process has begun and not ended: that process
# may be stopped or cut off. Then the attempt is given back and comes again, uncounted.
LOCK_TIMEOUT_S = 10.0


class LoopThread:
    """An event loop in a daemon thread, for callers that are not async themselves."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close its loop. What still runs there is abandoned."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end and return the result.

        An exception that hits the caller meanwhile (a soft time limit) cancels the coroutine and waits for
        it, so that it does not go on behind the caller's back.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("called from the loop itself: it would wait for itself; use the async form")
        future = asyncio.run_coroutine_threadsafe(_contained(coroutine), self.loop)
        try:
            result = future.result()
        except BaseException:
            if not future.done():
                ended = threading.Event()
                future.add_done_callback(lambda _: ended.set())
                self.loop.call_soon_threadsafe(future.cancel)
                ended.wait(CANCEL_TIMEOUT_S)
            raise
        if isinstance(result, _Left):
            raise result.error
        return result


@dataclass(frozen=True)
class _Left:
    error: BaseException


async def _contained(coroutine: Coroutine[Any, Any, T]) -> T | _Left:
    """asyncio lets these two end the loop, and with it all that comes after; they are the caller's."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        return _Left(error)


class Database:
    """A pool that is opened at first use. The async methods are for the loop, `run` for everyone else."""

    def __init__(self, settings: StorageSettings, loop: LoopThread, name: str) -> None:
        self._settings = settings
        self._loop = loop
        self._name = name
        self._pool: asyncpg.Pool | None = None
        self._opening = asyncio.Lock()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(coroutine)

    async def acquire(self) -> asyncpg.Connection:
        """A connection of the pool; give it back with `release`.

        Raises:
            storage.errors.DatabaseAwayError
        """
        with translate("get a connection"):
            async with self._opening:
                if self._pool is None:
                    self._pool = await open_pool(self._settings, self._name, lock_timeout_s=LOCK_TIMEOUT_S)
            connection: Any = await self._pool.acquire(timeout=self._settings.database_timeout_s)
        return connection  # type: ignore[no-any-return]  # the pool's proxy of a Connection

    async def release(self, connection: asyncpg.Connection) -> None:
        assert self._pool is not None
        await self._pool.release(connection)  # type: ignore[arg-type]  # see acquire

    async def close(self) -> None:
        """Close the pool's connections; what is used after that opens it again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
