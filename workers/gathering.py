"""How long a batch grows: a larger one costs less for each job, and somebody may wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from workers.completing import Finished
from workers.entries import Item

# Times `batch_ms`, while nobody waits.
LONGEST = 5
# A batch is looked at so often in `batch_ms`.
LOOKS = 2
# Jobs for each pool process: one that it runs, and for every other process one that comes next.
SUPPLY = 1.5


class Inbox:
    """What the main thread has handed over. One thread puts, one takes."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        # Each is written by one thread only.
        self._ends_put = self._ends_taken = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def ends(self) -> int:
        """Runs whose end is among the items."""
        return self._ends_put - self._ends_taken

    def put(self, item: Item) -> None:
        self._ends_put += isinstance(item, Finished)
        self._items.append(item)

    def take(self) -> Sequence[Item]:
        """All of it, in its order."""
        items = []
        while self._items:
            item = self._items.popleft()
            self._ends_taken += isinstance(item, Finished)
            items.append(item)
        return items


def may_grow(waited_ms: float, batch_ms: float, unfinished: int, processes: int) -> bool:
    """Whether the batch waits for more.

    Args:
        waited_ms: since there was something to do.
        batch_ms: see `workers.settings`.
        unfinished: jobs that are claimed and have not ended: they run, or wait for a process.
        processes: in the pool.
    """
    if unfinished >= SUPPLY * processes:  # nobody waits
        return waited_ms < LONGEST * batch_ms
    return unfinished > 0 and waited_ms < batch_ms  # idle processes wait for this batch and nothing else
