"""Who may run now: a job at its last chance alone, all others together.

A worker that is lost takes every run in it down, and each counts that against its own job. The job that
brings this about cannot be told from its neighbours, until it is lost once with no neighbour: so a job that
one more loss would end runs alone in its worker, and what then ends is the culprit and nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from uuid import UUID

from workers.arrival import Arrival


class Turns:
    """Claimed arrivals in their order. No I/O."""

    def __init__(self) -> None:
        self._waiting: deque[Arrival] = deque()
        self._running: set[UUID] = set()
        # Ended, and not yet known to be on record: lost now, these runs would count as lost.
        self._unrecorded: set[Arrival] = set()
        self._one_alone = False

    def ask(self, arrival: Arrival) -> None:
        """It may run, when its turn comes."""
        self._waiting.append(arrival)

    def admit(self) -> Iterator[Arrival]:
        """Those whose turn it is; each counts as running from then on."""
        while self._waiting and not self._one_alone:
            if self._waiting[0].alone and (self._running or self._unrecorded):
                return
            arrival = self._waiting.popleft()
            self._running.add(arrival.token)
            self._one_alone = arrival.alone
            yield arrival

    def ended(self, arrival: Arrival) -> None:
        """Its run is over, or did not begin; `recorded` follows."""
        self._running.discard(arrival.token)
        self._unrecorded.add(arrival)
        if not self._running:
            self._one_alone = False

    def recorded(self, arrival: Arrival) -> None:
        """Its end is on record, or somebody else's to record."""
        self._unrecorded.discard(arrival)

    def leave(self) -> list[Arrival]:
        """Those that still wait, and wait no more."""
        left = list(self._waiting)
        self._waiting.clear()
        return left
