"""What the event loop of a worker does at intervals.

**Pool processes that have ended are looked for.** The hub sees the end of one before it can be waited for,
and then not again; Celery 5.7.0 looks for it within 5 s, and until then nobody knows that its job is lost.

**Cancelled timers leave the event loop's queue.**
Celery's pool sets one timer for each run, for its time limit. Cancelled at the end of the run, kombu's queue
keeps it until its time: with 1,000 jobs a second and a limit of 840 s, 840,000 of them or half a gigabyte.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify
from typing import Any

# Seconds between two sweeps, and between two looks through the pool.
SWEEP_S = 5.0
LOOK_S = 0.2
BEAT_S = 1.0


def sweep(timer: Any) -> None:
    """Take cancelled entries out of a kombu `Timer`, once they are most of it."""
    queue: list[Any] = timer._queue
    live = [scheduled for scheduled in queue if not scheduled.entry.canceled]
    if len(live) * 2 < len(queue):
        heapify(live)
        queue[:] = live  # the timer's iterator holds this list


def look_through(pool: Any) -> None:
    """See which processes of a prefork pool have ended."""
    jobs: Any = getattr(pool, "_pool", None)
    if hasattr(jobs, "maintain_pool"):
        jobs.maintain_pool()


class Sweeping:
    """Both at intervals, and `beat`, which tells that the loop turns; started anew at each reconnect, where
    Celery fills the event loop again.
    """

    def __init__(self) -> None:
        self._entries: list[Any] = []

    def start(self, hub: Any, pool: Any, beat: Callable[[], None]) -> None:
        for entry in self._entries:
            entry.cancel()
        self._entries = [
            hub.call_repeatedly(SWEEP_S, sweep, hub.timer),
            hub.call_repeatedly(LOOK_S, look_through, pool),
            hub.call_repeatedly(BEAT_S, beat),
        ]
