"""Has jobs QUEUED whose rows were in other hands when the relay recorded what the broker confirmed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from itertools import islice
from typing import NoReturn

from storage import late_confirms
from storage.errors import DRIVER_ERRORS, StorageError
from storage.late_confirms import BATCH
from storage.pool import Pool, borrow
from topology.backoff import Backoff

log = logging.getLogger("redrive.api.relay")
# Most are in a worker's batch, which is over by then.
FIRST_S, LONGEST_S = 1.0, 30.0
# For what a relay left that was killed. It may read a million rows: rarely, and for so long at most.
LOOK_S, LOOK_FOR_S = 3_600.0, 60.0


class LateConfirms:
    """One per relay, beside it: the relay waits for no job's row."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._ids: dict[str, None] = {}
        self._added = asyncio.Event()
        self._backoff = Backoff(FIRST_S, LONGEST_S)
        self._look_at = float("-inf")

    def add(self, job_ids: Iterable[str]) -> None:
        """The broker has confirmed their messages, which is committed."""
        self._ids.update(dict.fromkeys(job_ids))
        if self._ids:
            self._added.set()

    async def run(self, pool: Pool) -> NoReturn:
        """Until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            try:
                if clock() >= self._look_at:
                    await self._look(pool, clock())
                await self._record(pool)
            except (StorageError, *DRIVER_ERRORS) as error:
                log.debug("not recorded that jobs are queued: %s", error)
            if self._ids:
                await asyncio.sleep(self._backoff.next_s())
                continue
            self._backoff.reset()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._look_at):
                    await self._added.wait()
                await asyncio.sleep(FIRST_S)

    async def _look(self, pool: Pool, now: float) -> None:
        self._look_at = now + LOOK_S  # also after an error: the table may be too large to look through
        async with borrow(pool, self._timeout_s, for_s=LOOK_FOR_S) as db:
            found = await late_confirms.find(db)
        self.add(found)
        if len(found) == BATCH:
            self._look_at = now

    async def _record(self, pool: Pool) -> None:
        self._added.clear()
        for _ in range(0, len(self._ids), BATCH):
            some = list(islice(self._ids, BATCH))
            async with borrow(pool, self._timeout_s) as db:
                left = await late_confirms.record(db, some)
            for job_id in some:
                del self._ids[job_id]
            self._ids.update(dict.fromkeys(left))  # behind the others
