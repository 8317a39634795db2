"""`once(key)`: an effect and its key in one transaction, in sync and in async tasks."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from kombu.utils.json import dumps

from storage import claims
from storage.effects import Effect
from storage.sync import Database
from workers.errors import AlreadyDone, LostClaimError

if TYPE_CHECKING:
    from workers.child import Ticket

T = TypeVar("T")


class AsyncTransaction:
    """The transaction of an effect, for `async with self.once(key)`: statements with `$1` arguments."""

    def __init__(self, effect: Effect) -> None:
        self._effect = effect
        self._result: bytes | None = None

    async def execute(self, statement: str, *arguments: object) -> str:
        """Run a statement; Postgres' tag, such as `INSERT 0 1`."""
        return await self._effect.execute(statement, *arguments)

    async def fetch(self, statement: str, *arguments: object) -> list[Any]:
        """All rows; columns by name or number."""
        return await self._effect.fetch(statement, *arguments)

    def store(self, result: object) -> None:
        """Keep a JSON-serialisable value with the effect: `AlreadyDone.result` for whoever tries again."""
        self._result = dumps(result, allow_nan=False).encode()


class Transaction:
    """The same for `with self.once(key)`."""

    def __init__(self, database: Database, inner: AsyncTransaction) -> None:
        self._database = database
        self._inner = inner

    def execute(self, statement: str, *arguments: object) -> str:
        """Run a statement; Postgres' tag, such as `INSERT 0 1`."""
        return self._run(self._inner.execute(statement, *arguments))

    def fetch(self, statement: str, *arguments: object) -> list[Any]:
        """All rows; columns by name or number."""
        return self._run(self._inner.fetch(statement, *arguments))

    def store(self, result: object) -> None:
        """Keep a JSON-serialisable value with the effect: `AlreadyDone.result` for whoever tries again."""
        self._inner.store(result)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._database.run(coroutine)


class Once:
    """See `RedriveTask.once`."""

    def __init__(self, database: Database, key: str, ticket: Ticket) -> None:
        self._database = database
        self._key = key
        self._ticket = ticket
        self._effect = Effect(database, key, ticket.job_id, ticket.claim)
        self._transaction = AsyncTransaction(self._effect)

    async def __aenter__(self) -> AsyncTransaction:
        happened = await self._effect.begin()
        if happened is not None:
            stored = None if happened.result is None else json.loads(happened.result)
            raise AlreadyDone(self._key, stored)
        return self._transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._effect.roll_back()
        elif not await self._effect.commit(self._transaction._result):
            raise LostClaimError(
                f"job {self._ticket.job_id}: another worker has taken it over; the effect {self._key!r} "
                "was rolled back"
            )

    def __enter__(self) -> Transaction:
        self._database.run(self.__aenter__())
        return Transaction(self._database, self._transaction)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.run(self.__aexit__(kind, error, trace))


def record_begin(database: Database, ticket: Ticket) -> None:
    """Put on record that this run begins, before it does: if it takes the worker down, it counts."""

    async def write() -> None:
        connection = await database.acquire()
        try:
            await claims.record_begin(connection, ticket.job_id, ticket.claim, ticket.limit_s)
        finally:
            await database.release(connection)

    database.run(write())


def write_progress(database: Database, ticket: Ticket, progress: bytes) -> None:
    """Write a running job's progress (JSON). A job that was lost meanwhile is left alone."""

    async def write() -> None:
        connection = await database.acquire()
        try:
            await claims.set_progress(connection, ticket.job_id, ticket.claim, progress)
        finally:
            await database.release(connection)

    database.run(write())
