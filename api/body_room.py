"""How much of request bodies one process holds at a time."""

from __future__ import annotations

import asyncio

# Bytes of bodies that are read or worked on; one that is larger is let in alone.
MOST_BYTES = 64 * 1_048_576
# Large bodies that are taken apart at once: it takes many times their bytes, and no longer one by one, since
# the interpreter runs one thread at a time.
MOST_PARSED = 2


class BodyRoom:
    """Counts bytes, from the first that came until the request is answered."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._held = 0
        self.parsing = asyncio.Semaphore(MOST_PARSED)

    def take(self, count: int, own: int) -> bool:
        """Whether `count` bytes more are let in, of a request that holds `own`."""
        if self._held > own and self._held + count > self._most:
            return False
        self._held += count
        return True

    def give_back(self, count: int) -> None:
        self._held -= count
