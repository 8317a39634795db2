"""`update_state` in a task: the job's progress in Postgres."""

from __future__ import annotations

import asyncio
import logging

from storage import claims
from storage.errors import StorageError
from storage.sync import Database
from workers.child import Ticket

logger = logging.getLogger(__name__)


async def write(database: Database, ticket: Ticket, progress: bytes) -> None:
    """Write a running job's progress (JSON). A job that was lost meanwhile is left alone.

    Raises:
        storage.errors.DatabaseAwayError
    """
    async with database.lend() as connection:
        await claims.set_progress(connection, ticket.job_id, ticket.claim, progress)


class ProgressWriter:
    """For an `async def` task, whose `update_state` cannot wait: the newest state is written beside it."""

    def __init__(self, database: Database, ticket: Ticket) -> None:
        self._database, self._ticket = database, ticket
        self._newest: bytes | None = None
        self._writing: asyncio.Task[None] | None = None

    def put(self, progress: bytes) -> None:
        """On the loop."""
        self._newest = progress
        if self._writing is None or self._writing.done():
            self._writing = self._database.beside(self._write())

    async def written(self) -> None:
        """Until all is written."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _write(self) -> None:
        while self._newest is not None:
            progress, self._newest = self._newest, None
            try:
                await write(self._database, self._ticket, progress)
            except StorageError as error:
                fields = {"action": "progress_lost", "job_id": self._ticket.job_id}
                logger.warning("progress was not written: %s", error, extra=fields)
