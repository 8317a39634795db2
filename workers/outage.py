"""While Postgres is away: how often the ledger knocks, and how often it says so."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from topology.backoff import Backoff, Waiting

logger = logging.getLogger(__name__)
FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
# Away again within this time is the same outage: a disk that is full takes connections and refuses writes.
STEADY_S = 10.0


class Outage:
    """At most one at a time. Times in monotonic seconds.

    Args:
        where: the database, for messages.
    """

    def __init__(self, where: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._where, self._clock = where, clock
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        self._waiting: Waiting | None = None
        self._since = self._over_at = float("-inf")
        self._told_end = False
        self.away = False

    @property
    def lasts_s(self) -> float:
        """Seconds since it began."""
        return self._clock() - self._since

    def failed(self, error: Exception) -> bool:
        """Postgres did not do what was asked; whether that is news."""
        began, self.away = not self.away, True
        if began and self._clock() - self._over_at >= STEADY_S:
            self._since, self._told_end = self._clock(), False
            self._backoff.reset()
            self._waiting = Waiting(f"the database at {self._where}, consuming nothing", _say, self._clock)
        assert self._waiting is not None
        self._waiting.failed(str(error))
        return began

    def pause_s(self) -> float:
        """Seconds to wait before the next try."""
        return self._backoff.next_s()

    def over(self) -> None:
        """It did what was asked."""
        self.away, self._over_at = False, self._clock()
        if not self._told_end:
            self._told_end = True
            logger.info("the database is back after %.1f s", self.lasts_s, extra={"action": "database_back"})


def _say(text: str) -> None:
    logger.warning(text, extra={"action": "database_away"})
