"""The pool that sync code shares with its loop's thread, as a worker has it, over one test's database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from storage.settings import StorageSettings
from storage.sync import Database, LoopThread


@contextmanager
def sync_database(url: str, name: str) -> Iterator[Database]:
    """Closed at the end, with its thread: else its pool tries for ever to reach a database that is gone."""
    loop = LoopThread(name)
    settings = StorageSettings(_env_file=None, database_url=url)  # type: ignore[call-arg, arg-type]
    made = Database(settings, loop, name)
    try:
        yield made
        made.run(_closed(made))
    finally:
        loop.stop()


async def _closed(pool: Database) -> None:
    """It waits for a connection that was not given back."""
    async with asyncio.timeout(10):
        await pool.close()
