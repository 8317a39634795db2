"""Requests that wait for jobs: one look at Postgres for all of them, however many wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

from storage import jobs
from storage.errors import DRIVER_ERRORS, StorageError
from storage.pool import AnyConnection

log = logging.getLogger("redrive.api")

LOOK_S = 0.2
# Of one process, streams included.
MAX_WAITING = 500


class Watcher:
    """One waiting request. `seen` is the mark of the job as it was last read by it."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.seen = ""
        self.news = asyncio.Event()

    async def changed(self, timeout_s: float) -> bool:
        """Whether the job is another than the one seen, or the server stops; False after `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.news.wait(), timeout_s)
        found = self.news.is_set()
        self.news.clear()
        return found


class JobWatch:
    """Looks while anyone waits, and not else."""

    def __init__(
        self, database: Callable[[], AbstractAsyncContextManager[AnyConnection]], stopping: asyncio.Event
    ) -> None:
        self._database = database
        self.stopping = stopping
        self._watchers: set[Watcher] = set()
        self._looking: asyncio.Task[None] | None = None

    @property
    def full(self) -> bool:
        return len(self._watchers) >= MAX_WAITING

    @contextmanager
    def watching(self, job_id: str) -> Iterator[Watcher]:
        """For as long as a request waits for this job."""
        watcher = Watcher(job_id)
        self._watchers.add(watcher)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="job-watch")
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    async def close(self) -> None:
        """Nobody waits any more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})

    async def _look(self) -> None:
        while self._watchers:
            if self.stopping.is_set():
                for watcher in self._watchers:
                    watcher.news.set()
            else:
                await self._compare()
            await asyncio.sleep(LOOK_S)

    async def _compare(self) -> None:
        ids = {watcher.job_id for watcher in self._watchers if not watcher.news.is_set()}
        if not ids:
            return
        try:
            async with self._database() as db:
                marks = await jobs.marks(db, ids)
        except (StorageError, *DRIVER_ERRORS) as error:
            # Those who wait find out when they read, or go on waiting.
            log.debug("no look at waiting jobs: %s", error, extra={"action": "watch_away"})
            return
        for watcher in self._watchers:
            # Of a watcher that came meanwhile nothing was asked.
            if watcher.job_id in ids and marks.get(watcher.job_id) != watcher.seen:
                watcher.news.set()
