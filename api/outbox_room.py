"""Whether the outbox takes more jobs: while the broker is away it grows, and the disk ends somewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from api.problems import Problem
from storage import outbox_size
from storage.errors import DRIVER_ERRORS, StorageError
from storage.pool import AnyConnection

log = logging.getLogger("redrive.api.relay")
# Between looks; what this process accepts and sends meanwhile is counted here.
LOOK_S = 1.0
# A look that took long is followed by a longer pause: at most this share of a connection's time.
SHARE = 0.05
# A delayed job counts when it is due within this time: then refused rows, which wait as long at most, do too.
WITHIN_S = 60.0
RETRY_AFTER_S = 5


class OutboxRoom:
    """The size of the outbox as this process knows it: with others beside it, about a second old."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.messages = 0
        self._said = False

    @property
    def full(self) -> bool:
        return self.messages >= self.limit

    def accepted(self, count: int) -> None:
        """This process committed so many rows."""
        self.messages += count

    def sent(self, count: int) -> None:
        """So many rows of this process's relay were confirmed."""
        self.messages = max(0, self.messages - count)

    async def require(self, db: AnyConnection, scope: str, keys: Sequence[str]) -> None:
        """Return when jobs may be accepted under `keys`: there is room, or all of them were accepted before.

        Raises:
            Problem: 503, the outbox is full.
            DatabaseAwayError: try again.
        """
        if self.full and await outbox_size.any_new(db, scope, keys):
            raise Problem(
                503,
                "outbox-full",
                f"{self.limit} messages wait to be published already; nothing was stored, try again",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )

    async def look(self, db: AnyConnection) -> None:
        """Measure.

        Raises:
            DatabaseAwayError: try again.
        """
        self.messages = await outbox_size.due(db, self.limit, within_s=WITHIN_S)
        if self.full != self._said:
            self._said = self.full
            now = f"full ({self.limit} messages): submissions get 503" if self.full else "no longer full"
            log.warning(
                "the outbox is %s", now, extra={"action": "outbox_full" if self.full else "outbox_ok"}
            )

    async def watch(self, database: Callable[[], AbstractAsyncContextManager[AnyConnection]]) -> NoReturn:
        """Measure again and again, until cancelled. While the database is away the last size counts."""
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                async with database() as db:
                    await self.look(db)
            except (StorageError, *DRIVER_ERRORS) as error:
                log.debug("the outbox was not measured: %s", error)
            await asyncio.sleep(max(LOOK_S, (clock() - began) / SHARE))
