"""Time limits of running threads. In a thread of its own: the main thread may be waiting for the broker."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from celery.exceptions import SoftTimeLimitExceeded

from workers.threads.job import Job
from workers.threads.slot import Ended

# A thread whose attempt was ended is told so again this often …
INSIST_S = 1.0
# … and given up after so long.
GIVE_UP_S = 5.0

Passed = Literal["soft", "hard", "given_up"]


@dataclass
class _Watch:
    soft_at: float
    hard_at: float
    give_up_at: float = math.inf
    insist_at: float = math.inf

    @property
    def next(self) -> float:
        return min(self.soft_at, self.hard_at, self.insist_at, self.give_up_at)


class Deadlines(threading.Thread):
    """`passed` is called, in this thread, with each limit that a job has reached."""

    def __init__(self, passed: Callable[[Job, Passed], None]) -> None:
        super().__init__(name="redrive-deadlines", daemon=True)
        self._passed = passed
        self._watches: dict[Job, _Watch] = {}
        self._wakes_at = math.inf
        self._changed = threading.Condition()
        self._stopped = False

    def watch(self, job: Job) -> None:
        """From now on its limits count."""
        now = time.monotonic()
        with self._changed:
            self._add(job, _Watch(now + job.soft_s, now + job.hard_s))

    def end(self, job: Job) -> None:
        """Have its thread come back, or give it up."""
        now = time.monotonic()
        with self._changed:
            self._add(job, _Watch(math.inf, math.inf, now + GIVE_UP_S, now))

    def forget(self, job: Job) -> None:
        """Its thread has come back."""
        with self._changed:
            self._watches.pop(job, None)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _add(self, job: Job, watch: _Watch) -> None:
        self._watches[job] = watch
        if watch.next < self._wakes_at:
            self._changed.notify()

    def run(self) -> None:
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                for job, watch in list(self._watches.items()):
                    if watch.next <= now:
                        self._act(job, watch, now)
                self._wakes_at = min((watch.next for watch in self._watches.values()), default=math.inf)
                timeout = None if math.isinf(self._wakes_at) else max(self._wakes_at - now, 0.0)
                self._changed.wait(timeout)

    def _act(self, job: Job, watch: _Watch, now: float) -> None:
        assert job.slot is not None
        if watch.give_up_at <= now:
            del self._watches[job]
            self._passed(job, "given_up")
        elif watch.hard_at <= now:
            watch.soft_at = watch.hard_at = math.inf
            watch.give_up_at = now + GIVE_UP_S
            self._passed(job, "hard")
            self._insist(job, watch, now)
        elif watch.insist_at <= now:
            self._insist(job, watch, now)
        else:
            watch.soft_at = math.inf
            self._passed(job, "soft")
            job.slot.interrupt(job, SoftTimeLimitExceeded)

    def _insist(self, job: Job, watch: _Watch, now: float) -> None:
        assert job.slot is not None
        watch.insist_at = now + INSIST_S
        job.slot.interrupt(job, Ended)
