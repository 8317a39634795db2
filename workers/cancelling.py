"""`self.cancelled()` in a task: whether somebody asked its job to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field

from storage import job_actions
from storage.errors import StorageError
from storage.sync import Database
from workers import loop
from workers.child import Ticket

logger = logging.getLogger(__name__)
# Between two looks at Postgres, so that a task may ask in every round of its loop.
LOOK_S = 1.0


@dataclass
class Cancelling:
    """Of one attempt. Once asked, it stays so."""

    ticket: Ticket
    asked: bool = False
    _looked: float = field(default=float("-inf"))
    _looking: asyncio.Task[None] | None = None

    def look(self) -> bool:
        """What is known; from plain code after a look at Postgres, on the event loop while one begins.

        While Postgres is away, what was known before.
        """
        if not self.asked and time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            database = loop.database()
            if not loop.thread().here:
                database.run(self._look(database))
            elif self._looking is None or self._looking.done():
                self._looking = database.beside(self._look(database))
        return self.asked

    async def _look(self, database: Database) -> None:
        try:
            async with database.lend() as connection:
                self.asked = await job_actions.cancel_asked(
                    connection, self.ticket.job_id, self.ticket.generation
                )
        except StorageError as error:
            fields = {"action": "cancel_unknown", "job_id": self.ticket.job_id}
            logger.warning("whether it is cancelled is not known now: %s", error, extra=fields)
