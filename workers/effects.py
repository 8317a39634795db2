"""`once(key)`: an effect and its key in one transaction, in sync and in async tasks."""

from __future__ import annotations

import json
from types import TracebackType
from typing import TYPE_CHECKING

from kombu.utils.json import dumps

from storage import claims
from storage.effects import Effect
from storage.sync import Database
from workers.database import SyncTransaction
from workers.errors import AlreadyDone, LostClaimError

if TYPE_CHECKING:
    from workers.child import Ticket


class AsyncEffect:
    """The transaction of an effect, for `async with self.once(key)`: statements with `$1` arguments."""

    def __init__(self, effect: Effect) -> None:
        self.execute, self.fetch = effect.execute, effect.fetch
        self.result: bytes | None = None

    def store(self, result: object) -> None:
        """Keep a JSON-serialisable value with the effect: `AlreadyDone.result` for whoever tries again."""
        self.result = dumps(result, allow_nan=False).encode()


class SyncEffect(SyncTransaction):
    """The same for `with self.once(key)`."""

    def __init__(self, database: Database, effect: Effect, inner: AsyncEffect) -> None:
        super().__init__(database, effect)
        self.store = inner.store


class Once:
    """See `RedriveTask.once`."""

    def __init__(self, database: Database, key: str, ticket: Ticket) -> None:
        self._database = database
        self._key = key
        self._ticket = ticket
        self._effect = Effect(database, key, ticket.job_id, ticket.claim)
        self._transaction = AsyncEffect(self._effect)

    async def __aenter__(self) -> AsyncEffect:
        happened = await self._effect.begin_once()
        if happened is not None:
            stored = None if happened.result is None else json.loads(happened.result)
            raise AlreadyDone(self._key, stored)
        return self._transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._effect.roll_back()
        elif not await self._effect.commit_held(self._transaction.result):
            raise LostClaimError(
                f"job {self._ticket.job_id}: another worker has taken it over; the effect {self._key!r} "
                "was rolled back"
            )

    def __enter__(self) -> SyncEffect:
        self._database.run(self.__aenter__())
        return SyncEffect(self._database, self._effect, self._transaction)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.run(self.__aexit__(kind, error, trace))


def record_begin(database: Database, ticket: Ticket) -> None:
    """Put on record that this run begins, before it does: if it takes the worker down, it counts."""

    async def write() -> None:
        async with database.lend() as connection:
            await claims.record_begin(connection, ticket.job_id, ticket.claim, ticket.limit_s)

    database.run(write())
