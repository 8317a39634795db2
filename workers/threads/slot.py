"""One thread of the pool: it runs one job after the other, and can be interrupted while it runs one.

The interruption is an exception that the interpreter raises in the thread between two bytecodes
(https://docs.python.org/3/c-api/init.html#c.PyThreadState_SetAsyncExc): a thread that waits in C code, such
as `time.sleep` or a socket, meets it when it comes back from there. Up to CPython 3.11 at least, a thread
that is just being started has its starter's number, and is hit in its place: it ends, and its starter waits
for it until it is given up.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from billiard.einfo import ExceptionInfo

if TYPE_CHECKING:
    from workers.threads.job import Job


class Ended(BaseException):
    """Raised in a thread whose attempt has ended without it: no `except Exception` keeps it."""


def _raise_in(ident: int, kind: type[BaseException] | None) -> None:
    """None takes back what was not raised yet."""
    value = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), value)


class Slot(threading.Thread):
    """Daemonic: one that never comes back does not keep the process from ending.

    Args:
        begin: called in the thread, first of all.
        done: called in the thread with each job that has ended.
    """

    def __init__(self, number: int, begin: Callable[[], None], done: Callable[[Job], None]) -> None:
        super().__init__(name=f"redrive-job-{number}", daemon=True)
        self._begin, self._done = begin, done
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._running: Job | None = None
        self._lock = threading.Lock()

    def give(self, job: Job) -> None:
        self._inbox.put(job)

    def retire(self) -> None:
        """End, once the job in hand has ended."""
        self._inbox.put(None)

    def interrupt(self, job: Job, kind: type[BaseException]) -> None:
        """Raise `kind` in the thread, if it still runs `job`."""
        with self._lock:
            if self._running is job and self.ident is not None:
                _raise_in(self.ident, kind)

    def run(self) -> None:
        self._begin()
        while (job := self._inbox.get()) is not None:
            self._run(job)

    def _run(self, job: Job) -> None:
        begun = False
        while True:  # an interruption may come at any line below, and once more while that is handled
            try:
                if not begun:
                    begun = True
                    with self._lock:
                        self._running = job
                    job.value = job.target(*job.arguments)
                with self._lock:
                    self._running = None
                    assert self.ident is not None
                    _raise_in(self.ident, None)
                break
            except BaseException:  # noqa: BLE001 - the main thread judges it
                job.failure = job.failure or ExceptionInfo()
        self._done(job)
