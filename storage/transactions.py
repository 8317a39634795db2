"""A transaction whose steps may be cancelled at any await, without a connection being lost or left dirty."""

from __future__ import annotations

from typing import Any

import asyncpg

from storage.errors import translate, translate_in_task
from storage.sync import Database


class Transaction:
    """All methods run on the database's loop. After `begin`, `commit` or `roll_back` must be called."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: asyncpg.Connection | None = None
        self._transaction: Any = None

    @property
    def connection(self) -> asyncpg.Connection:
        assert self._connection is not None, "outside of the block"
        return self._connection

    async def begin(self) -> None:
        """Raises:
        storage.errors.DatabaseAwayError
        """
        self._connection = await self._database.acquire()
        try:
            with translate("begin a transaction"):
                self._transaction = self._connection.transaction()
                await self._transaction.start()
        except BaseException:
            await self.roll_back()
            raise

    async def commit(self) -> None:
        """Commit, and give the connection back whatever happens."""
        try:
            with translate_in_task("commit a transaction", self.connection):
                transaction, self._transaction = self._transaction, None
                await transaction.commit()
        finally:
            await self.roll_back()

    async def execute(self, statement: str, *arguments: object) -> str:
        """A statement; Postgres' tag, such as `INSERT 0 1`."""
        with translate_in_task("change something in a transaction", self.connection):
            return str(await self.connection.execute(statement, *arguments))

    async def fetch(self, statement: str, *arguments: object) -> list[Any]:
        """All rows; columns by name or number."""
        with translate_in_task("read something in a transaction", self.connection):
            return list(await self.connection.fetch(statement, *arguments))

    async def roll_back(self) -> None:
        """End the transaction, if it is open, and give the connection back.

        A lost connection is no error here: the server has rolled back.
        """
        connection, self._connection = self._connection, None
        transaction, self._transaction = self._transaction, None
        if connection is not None:
            await self._database.release(connection, transaction)
