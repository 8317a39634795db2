"""The pool of `celery worker -P threads`. Its threads only run jobs: all callbacks are on the main thread.

A thread cannot be killed. Past its hard limit an attempt ends without it: its claim is gone, so that it can
neither complete its job nor commit an effect. A thread that then does not come back is given up, and with it
this worker: it takes nothing more, lets the others finish and exits with `exits.RESTART`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.exceptions import Terminated, TimeLimitExceeded
from celery.concurrency.base import BasePool
from celery.worker import state
from kombu.asynchronous import get_event_loop

from topology import exits
from workers import loop
from workers.threads.deadlines import Deadlines, Passed
from workers.threads.job import Job
from workers.threads.slot import Slot

logger = logging.getLogger(__name__)
Event = tuple[Job, Passed | None]  # None: its thread has come back


class TaskPool(BasePool):
    """As many threads as the concurrency says."""

    signal_safe = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._free: list[Slot] = []
        self._pending: deque[Job] = deque()
        self._running: set[Job] = set()  # until its thread has come back or is given up
        self._events: deque[Event] = deque()
        self._deadlines = Deadlines(self._tell)
        self._fd, self._poke_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.given_up = 0

    # Celery's main thread

    def on_start(self) -> None:
        # One connection for each job, and one for what a job writes beside its transaction.
        loop.serve(self.limit + 1)
        # Started by a job, it could be hit by what interrupts the job: see workers/threads/slot.py.
        loop.thread()
        self._free = [Slot(number, self._begin, self._done) for number in range(1, self.limit + 1)]
        for slot in self._free:
            slot.start()
        self._deadlines.start()

    def register_with_event_loop(self, hub: Any) -> None:
        hub.add_reader(self._fd, self.on_events)
        self.on_events()

    def on_apply(
        self, target: Callable[..., Any], args: Any = (), kwargs: Any = None, *, callback: Any,
        error_callback: Any, accept_callback: Any, timeout_callback: Any,
        soft_timeout: float | None = None, timeout: float | None = None, **_: Any,
    ) -> Job:  # fmt: skip
        job = Job(
            target=target, arguments=args, on_value=callback, on_failure=error_callback,
            on_accepted=accept_callback, on_timeout=timeout_callback,
        )  # fmt: skip
        job.soft_s, job.hard_s = soft_timeout or job.soft_s, timeout or job.hard_s
        self._pending.append(job)
        self._hand_out()
        return job

    def drop_unbegun(self) -> None:
        """Forget the jobs that no thread has begun."""
        self._pending.clear()

    def terminate_job(self, pid: int, signal: int | None = None) -> None:
        """Celery's revoke with `terminate`. `pid` is what `on_accepted` told: the thread's native id."""
        for job in self._running:
            if job.slot is not None and job.slot.native_id == pid and not job.over:
                self._call_off(job, Terminated(-(signal or 0)))

    def on_events(self) -> None:
        """What the threads and the deadlines had to tell."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 4096)
        while self._events:
            job, passed = self._events.popleft()
            match passed:
                case None:
                    self._came_back(job)
                case "soft" if job in self._running and not job.over:
                    self._call(job.on_timeout, True, job.soft_s)
                case "hard" if job in self._running and not job.over:
                    job.over = True
                    self._call(job.on_failure, _info(TimeLimitExceeded(job.hard_s)))
                    self._call(job.on_timeout, False, job.hard_s)
                case "given_up":
                    self._give_up(job)

    def on_stop(self) -> None:
        """Wait for what runs; each job's hard limit bounds it."""
        if state.should_terminate:
            self._pending.clear()
        hub = get_event_loop()
        while self._running or self._pending:
            select.select([self._fd], [], [], 0.2)
            self.on_events()
            if hub is not None:
                hub.fire_timers()  # heartbeats
        self._end_threads()

    def on_terminate(self) -> None:
        for job in tuple(self._running):
            self._call_off(job, Terminated(0))
        self._pending.clear()
        self._end_threads()

    def _end_threads(self) -> None:
        for slot in self._free:
            slot.retire()
        self._deadlines.stop()

    def _hand_out(self) -> None:
        while self._pending and self._free:
            job, slot = self._pending.popleft(), self._free.pop()
            job.slot, job._accepted = slot, True
            self._running.add(job)
            self._deadlines.watch(job)
            slot.give(job)
            self._call(job.on_accepted, slot.native_id, time.monotonic())

    def _call_off(self, job: Job, error: Exception) -> None:
        if not job.over:
            job.over, job.called_off = True, error
            self._deadlines.end(job)

    def _came_back(self, job: Job) -> None:
        if job not in self._running:  # given up before
            return
        assert job.slot is not None
        self._running.discard(job)
        self._free.append(job.slot)
        if job.called_off is not None:
            self._call(job.on_failure, _info(job.called_off))
        elif job.over:
            logger.info("a thread came back after its hard time limit", extra={"action": "thread_back"})
        elif job.failure is not None:
            self._call(job.on_failure, job.failure)
        else:
            self._call(job.on_value, job.value)
        self._hand_out()

    def _give_up(self, job: Job) -> None:
        if job not in self._running:
            return
        self._running.discard(job)
        self.given_up += 1
        logger.critical(
            "a thread did not come back and is given up: this worker finishes what runs and exits with %d",
            exits.RESTART,
            extra={"action": "thread_given_up", "given_up": self.given_up, "threads": self.limit},
        )
        if job.called_off is not None:
            self._call(job.on_failure, _info(job.called_off))
        if state.should_stop is None or state.should_stop is False:
            state.should_stop = exits.RESTART

    @staticmethod
    def _call(callback: Callable[..., None], *arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception:
            logger.exception("a callback of the pool failed", extra={"action": "callback_failed"})

    def _get_info(self) -> dict[str, Any]:
        info: dict[str, Any] = super()._get_info()
        return info | {"threads": self.limit - self.given_up, "given-up": self.given_up}

    # Their threads

    def _begin(self) -> None:
        if self.app is not None:
            self.app.set_current()

    def _done(self, job: Job) -> None:
        self._deadlines.forget(job)
        self._tell(job, None)

    def _tell(self, job: Job, passed: Passed | None) -> None:
        self._events.append((job, passed))
        with contextlib.suppress(BlockingIOError):  # full: it is readable
            os.write(self._poke_fd, b"\0")


def _info(error: Exception) -> ExceptionInfo:
    try:
        raise error
    except type(error):
        return ExceptionInfo()
