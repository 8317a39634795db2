"""Cancelled timers leave the event loop's queue.

Celery's pool sets one timer for each run, for its time limit. Cancelled at the end of the run, kombu's queue
keeps it until its time: with 1,000 jobs a second and a limit of 840 s, 840,000 of them or half a gigabyte.
"""

from __future__ import annotations

from heapq import heapify
from typing import Any

# Seconds between two sweeps.
SWEEP_S = 5.0


def sweep(timer: Any) -> None:
    """Take cancelled entries out of a kombu `Timer`, once they are most of it."""
    queue: list[Any] = timer._queue
    live = [scheduled for scheduled in queue if not scheduled.entry.canceled]
    if len(live) * 2 < len(queue):
        heapify(live)
        queue[:] = live  # the timer's iterator holds this list


class Sweeping:
    """Sweeps at intervals; started anew at each reconnect, where Celery fills the event loop again."""

    def __init__(self) -> None:
        self._entry: Any = None

    def start(self, hub: Any) -> None:
        if self._entry is not None:
            self._entry.cancel()
        self._entry = hub.call_repeatedly(SWEEP_S, sweep, hub.timer)
