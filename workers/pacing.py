"""Pauses before a worker connects to the broker again."""

from __future__ import annotations

import time
from collections.abc import Callable

from topology.backoff import Backoff

# A connection that lasted so long was a good one: the next loss is a new trouble.
STEADY_S = 10.0
MOST_S = 10.0


class Pace:
    """Celery waits where it cannot connect, and not where it can and then fails: a queue whose node is away,
    a right that is missing. Drawn by lot, so that many workers do not come at one moment.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._backoff = Backoff(0.5, MOST_S)
        self._connected_at: float | None = None

    def pause_s(self) -> float:
        """Seconds to wait now; none before the first connection."""
        if self._connected_at is None:
            return 0.0
        if self._clock() - self._connected_at >= STEADY_S:
            self._backoff.reset()
        return self._backoff.next_s()

    def connected(self) -> None:
        self._connected_at = self._clock()
