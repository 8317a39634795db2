"""Work that takes long, a few at a time: threads and connections are left for requests that are over soon.

Twelve replays that asked a broker which gave no answer held all connections: submissions got 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from api.problems import Problem

BUSY = {"Retry-After": "5"}


class LongWork:
    """Of one process. `share` of the pool's connections, one at least, is used by it at a time."""

    def __init__(self, connections: int, share: float, wait_s: float) -> None:
        self.most = max(1, int(connections * share))
        self._turns = asyncio.Semaphore(self.most)
        self._wait_s = wait_s

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it inside.

        Raises:
            Problem: 503, none within `wait_s`.
        """
        try:
            async with asyncio.timeout(self._wait_s):
                await self._turns.acquire()
        except TimeoutError:
            detail = f"{self.most} requests that take as long are under way; nothing was done, try again"
            raise Problem(503, "too-many-at-once", detail, headers=BUSY) from None
        try:
            yield
        finally:
            self._turns.release()
