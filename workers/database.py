"""The database, one pool per process: `self.database` in plain tasks, `self.pool` in async ones.

Statements take `$1` arguments. Nothing here is fenced: an effect that must happen once belongs into
`self.once`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from storage.errors import translate_in_task
from storage.sync import Database
from storage.transactions import Transaction

if TYPE_CHECKING:
    from storage.claims import Connection


class AsyncPool:
    """All methods raise storage.errors.DatabaseAwayError; a task that lets it pass comes again, uncounted.

    Other errors inside of a block pass as they are. PoolExhaustedError: the job holds all connections itself.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """An asyncpg connection for the block."""
        async with self._database.lend() as connection:
            with translate_in_task("use a connection in a task", connection):
                yield connection

    async def execute(self, statement: str, *arguments: object) -> str:
        """Run a statement; Postgres' tag, such as `INSERT 0 1`."""
        async with self.acquire() as connection:
            return str(await connection.execute(statement, *arguments))

    async def fetch(self, statement: str, *arguments: object) -> list[Any]:
        """All rows; columns by name or number."""
        async with self.acquire() as connection:
            return list(await connection.fetch(statement, *arguments))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Committed at the end of the block, rolled back if it raises."""
        transaction = Transaction(self._database)
        await transaction.begin()
        try:
            yield transaction
        except BaseException:
            await transaction.roll_back()
            raise
        await transaction.commit()


class SyncTransaction:
    """Statements of one transaction."""

    def __init__(self, database: Database, inner: Transaction) -> None:
        self._database, self._inner = database, inner

    def execute(self, statement: str, *arguments: object) -> str:
        """Run a statement; Postgres' tag, such as `INSERT 0 1`."""
        return self._database.run(self._inner.execute(statement, *arguments))

    def fetch(self, statement: str, *arguments: object) -> list[Any]:
        """All rows; columns by name or number."""
        return self._database.run(self._inner.fetch(statement, *arguments))


class SyncDatabase:
    """The same for plain tasks. A soft time limit interrupts each wait."""

    def __init__(self, database: Database) -> None:
        self._database, self._pool = database, AsyncPool(database)

    def execute(self, statement: str, *arguments: object) -> str:
        """Run a statement; Postgres' tag, such as `INSERT 0 1`."""
        return self._database.run(self._pool.execute(statement, *arguments))

    def fetch(self, statement: str, *arguments: object) -> list[Any]:
        """All rows; columns by name or number."""
        return self._database.run(self._pool.fetch(statement, *arguments))

    @contextmanager
    def transaction(self) -> Iterator[SyncTransaction]:
        """Committed at the end of the block, rolled back if it raises."""
        inner = Transaction(self._database)
        self._database.run(inner.begin())
        try:
            yield SyncTransaction(self._database, inner)
        except BaseException:
            self._database.run(inner.roll_back())
            raise
        self._database.run(inner.commit())
