"""When a worker stops: the signals, and how long each part may take, together not over the grace.

| signal | what |
|---|---|
| SIGTERM, and the first SIGINT | what runs may finish within the grace, the rest is handed back at once |
| SIGQUIT, and a second SIGINT | what runs is ended and handed back too |
| SIGHUP | as SIGTERM, then the same command starts anew (Celery's) |
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery import signals
from celery.worker import state

from topology import exits

LONGEST_RESERVE_S = 5.0


@dataclass(frozen=True)
class Deadlines:
    """Monotonic times, each after the one before."""

    run_until: float  # then what still runs is ended and handed back
    settle_until: float  # then what is not on record stays unacked, and the broker delivers it again
    end: float

    @property
    def reserve_s(self) -> float:
        """For the handing back."""
        return self.end - self.run_until


def deadlines(now: float, grace_s: float) -> Deadlines:
    """Those of a stop that begins `now`."""
    reserve_s = min(LONGEST_RESERVE_S, grace_s / 2)
    end = now + grace_s
    return Deadlines(end - reserve_s, end - reserve_s / 4, end)


class Stop:
    """The stop of this process, once it has begun."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self.deadlines: Deadlines | None = None

    def begin(self) -> Deadlines:
        """It begins, unless it has."""
        if self.deadlines is None:
            self._set(deadlines(time.monotonic(), self._grace_s))
        assert self.deadlines is not None
        return self.deadlines

    def hurry(self) -> None:
        """What runs gets no more time."""
        now, reserve_s = time.monotonic(), deadlines(0.0, self._grace_s).reserve_s
        sooner = deadlines(now - self._grace_s + reserve_s, self._grace_s)
        if self.deadlines is None or sooner.end < self.deadlines.end:
            self._set(sooner)

    def listen(self, hostname: str) -> None:
        """Take the signals from Celery, whose wait would block the event loop and with it the heartbeats.

        After Celery has installed its own handlers. A worker inside of another program's thread gets none.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGHUP):
            celerys = signal.getsignal(number)
            if callable(celerys):
                signal.signal(number, self._then(celerys))
        signal.signal(signal.SIGQUIT, lambda *_: self._quit(hostname, "SIGQUIT"))
        signal.signal(signal.SIGINT, lambda *_: self._interrupt(hostname))

    def _then(self, handler: Callable[..., Any]) -> Callable[..., None]:
        def handle(*args: Any) -> None:
            self.begin()
            handler(*args)

        return handle

    def _interrupt(self, hostname: str) -> None:
        if self.deadlines is not None:
            self._quit(hostname, "SIGINT")
            return
        self.begin()
        _tell_celery(hostname, "SIGINT", "Warm")

    def _quit(self, hostname: str, name: str) -> None:
        self.hurry()
        _tell_celery(hostname, name, "Cold")

    def _set(self, made: Deadlines) -> None:
        """Something may hang: at the end this process is ended by force, and tells where it was.

        What is not on record then is delivered again; pool processes end with this one. Called by signal
        handlers: it takes no lock that the main thread may hold.
        """
        self.deadlines = made
        seconds = max(made.end - time.monotonic(), 0.1)
        # Celery puts a logger in the place of sys.stderr.
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)


def _tell_celery(hostname: str, name: str, how: str) -> None:
    signals.worker_shutting_down.send(sender=hostname, sig=name, how=how, exitcode=exits.FAILED)
    state.should_stop = exits.FAILED
