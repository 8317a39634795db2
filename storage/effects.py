"""The effect ledger: an effect's key is inserted in the transaction of the business change."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from storage.errors import DRIVER_ERRORS, translate
from storage.sync import Database

_INSERT = "INSERT INTO redrive.effects (key, job_id, claim) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING"
_RESULT = "SELECT result FROM redrive.effects WHERE key = $1"
_STORE = "UPDATE redrive.effects SET result = $2 WHERE key = $1"
# The row lock lasts from here to the commit: a takeover waits for it, and one that came before is seen.
_HOLDS = "SELECT 1 FROM redrive.jobs WHERE id = $1 AND claim = $2 AND state = 'RUNNING' FOR SHARE"


@dataclass(frozen=True)
class Happened:
    """The effect's key is taken, by a transaction that has committed."""

    result: bytes | None


class Effect:
    """One transaction that holds an effect's key. All methods run on the database's loop."""

    def __init__(self, database: Database, key: str, job_id: str, claim: UUID) -> None:
        self._database = database
        self._key, self._job_id, self._claim = key, job_id, claim
        self._connection: asyncpg.Connection | None = None
        self._transaction: Any = None

    @property
    def connection(self) -> asyncpg.Connection:
        assert self._connection is not None, "outside of the block"
        return self._connection

    async def begin(self) -> Happened | None:
        """Open the transaction and insert the key; `Happened` (and no transaction) if it is taken.

        A transaction of another process that holds the key is waited for: then it either has happened or not.
        """
        self._connection = await self._database.acquire()
        try:
            with translate("begin an effect"):
                self._transaction = self._connection.transaction()
                await self._transaction.start()
                tag = await self._connection.execute(_INSERT, self._key, self._job_id, self._claim)
                if tag == "INSERT 0 1":
                    return None
                row = await self._connection.fetchrow(_RESULT, self._key)
        except BaseException:
            await self.roll_back()
            raise
        await self.roll_back()
        return Happened(row["result"] if row else None)

    async def commit(self, result: bytes | None) -> bool:
        """Commit, if the claim still holds its job; else roll back and return False."""
        held = False
        try:
            with translate("commit an effect"):
                if result is not None:
                    await self.connection.execute(_STORE, self._key, result)
                held = await self.connection.fetchrow(_HOLDS, self._job_id, self._claim) is not None
                if held:
                    transaction, self._transaction = self._transaction, None
                    await transaction.commit()
        finally:
            await self.roll_back()
        return held

    async def execute(self, statement: str, *arguments: object) -> str:
        """A statement of the business change; Postgres' tag, such as `INSERT 0 1`."""
        with translate("change something in an effect"):
            return str(await self.connection.execute(statement, *arguments))

    async def fetch(self, statement: str, *arguments: object) -> list[Any]:
        """All rows; columns by name or number."""
        with translate("read something in an effect"):
            return list(await self.connection.fetch(statement, *arguments))

    async def roll_back(self) -> None:
        """End the transaction, if it is open, and give the connection back.

        A lost connection is no error here: the server has rolled back.
        """
        connection, self._connection = self._connection, None
        transaction, self._transaction = self._transaction, None
        if connection is None:
            return
        with contextlib.suppress(*DRIVER_ERRORS):
            if transaction is not None and not connection.is_closed():
                await transaction.rollback()
        with contextlib.suppress(*DRIVER_ERRORS):
            await self._database.release(connection)
