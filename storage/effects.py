"""The effect ledger: an effect's key is inserted in the transaction of the business change."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from storage.errors import translate
from storage.sync import Database
from storage.transactions import Transaction

_INSERT = "INSERT INTO redrive.effects (key, job_id, claim) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING"
_RESULT = "SELECT result FROM redrive.effects WHERE key = $1"
_STORE = "UPDATE redrive.effects SET result = $2 WHERE key = $1"
# The row lock lasts from here to the commit: a takeover waits for it, and one that came before is seen.
_HOLDS = "SELECT 1 FROM redrive.jobs WHERE id = $1 AND claim = $2 AND state = 'RUNNING' FOR SHARE"


@dataclass(frozen=True)
class Happened:
    """The effect's key is taken, by a transaction that has committed."""

    result: bytes | None


class Effect(Transaction):
    """One transaction that holds an effect's key."""

    def __init__(self, database: Database, key: str, job_id: str, claim: UUID) -> None:
        super().__init__(database)
        self._key, self._job_id, self._claim = key, job_id, claim

    async def begin_once(self) -> Happened | None:
        """Open the transaction and insert the key; `Happened` (and no transaction) if it is taken.

        A transaction of another process that holds the key is waited for: then it either has happened or not.
        """
        await self.begin()
        try:
            with translate("begin an effect"):
                tag = await self.connection.execute(_INSERT, self._key, self._job_id, self._claim)
                if tag == "INSERT 0 1":
                    return None
                row = await self.connection.fetchrow(_RESULT, self._key)
        except BaseException:
            await self.roll_back()
            raise
        await self.roll_back()
        return Happened(row["result"] if row else None)

    async def commit_held(self, result: bytes | None) -> bool:
        """Commit, if the claim still holds its job; else roll back and return False."""
        try:
            with translate("commit an effect"):
                if result is not None:
                    await self.connection.execute(_STORE, self._key, result)
                held = await self.connection.fetchrow(_HOLDS, self._job_id, self._claim) is not None
        except BaseException:
            await self.roll_back()
            raise
        await (self.commit() if held else self.roll_back())
        return held
