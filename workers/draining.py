"""The last stretch of a stopping worker, on its event loop: heartbeats, acks and completions go on.

Nothing more is consumed; what has not begun is handed back at once; what runs may finish. What still runs
when its time is over is ended, and only then handed back, so that it never runs twice at once.
"""

from __future__ import annotations

import logging
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from celery.worker import state

from workers.outcomes import Returned
from workers.stopping import Deadlines, Stop
from workers.threads.pool import TaskPool as Threads
from workers.transport import BoundedWait

if TYPE_CHECKING:
    from workers.consumer import RedriveConsumer
    from workers.request import RedriveRequest

logger = logging.getLogger(__name__)
# The loop looks at the clock so often.
TICK_S = 0.1
# Between SIGTERM, on which a task may clean up, and SIGKILL: this share of what is left.
POLITE = 0.25


class Drain:
    """Of one worker, on its main thread."""

    def __init__(self, consumer: RedriveConsumer, stop: Stop) -> None:
        self._consumer = consumer
        self._guard = consumer.guard
        self._ledger = consumer.ledger
        self._stop = stop
        self._ending: dict[RedriveRequest, float] = {}  # and when SIGKILL is due
        self._said_until = 0.0

    def run(self) -> None:
        """Until nothing is left to settle here, or the time for it is over."""
        consumer, errors = self._consumer, self._guard.broker_errors
        consumer.closing = self._ledger.closing = True
        until = self._stop.begin()
        BoundedWait.answer_timeout_s = min(BoundedWait.answer_timeout_s, until.reserve_s / 2)
        replace_no_process(consumer.pool)
        try:
            if consumer.task_consumer is not None:
                consumer.task_consumer.cancel()
        except errors as error:
            self._go_on_without_broker(error)
        give_back_unbegun(consumer)
        if self._settled():
            return
        if self._ledger.fd not in consumer.hub.readers:  # stopped between two connections
            self._listen()
        tick = consumer.hub.call_repeatedly(TICK_S, _nothing)
        loop = consumer.hub.create_loop()
        while not self._settled() and self._ledger.alive and time.monotonic() < until.settle_until:
            until = self._stop.begin()
            self._say(until)
            if time.monotonic() >= until.run_until:
                self._end_runs(until)
            try:
                next(loop)
            except StopIteration:
                loop = consumer.hub.create_loop()
            except errors as error:
                self._go_on_without_broker(error)
                loop = consumer.hub.create_loop()
        tick.cancel()

    def _settled(self) -> bool:
        return not self._guard.running() and self._ledger.outstanding <= 0

    def _say(self, until: Deadlines) -> None:
        running = len(self._guard.running())
        if running and until.run_until != self._said_until:
            self._said_until = until.run_until
            left_s = max(until.run_until - time.monotonic(), 0.0)
            logger.info(
                "stopping: %d jobs have %.1f s to finish", running, left_s, extra={"action": "stopping"}
            )

    def _end_runs(self, until: Deadlines) -> None:
        now = time.monotonic()
        for request in self._guard.running():
            due = self._ending.get(request)
            if due is None:
                logger.warning(
                    "does not end within the grace: ended and handed back",
                    extra=request.arrival.log_fields("handed_back"),
                )
                request.hand_back(signal.SIGTERM)
                self._ending[request] = now + POLITE * max(until.settle_until - now, 0.0)
            elif now >= due:
                request.hand_back(signal.SIGKILL)
                self._ending[request] = until.end

    def _go_on_without_broker(self, error: BaseException) -> None:
        """Its messages come again, elsewhere; what they did here is on record by then."""
        logger.warning("the connection was lost while stopping: %s", error)
        self._ledger.session += 1
        if self._consumer.event_dispatcher is not None:  # or Celery's heart would wait for a new connection
            self._consumer.event_dispatcher.enabled = False
        with suppress(Exception):  # without a word to the broker, for whose answer it would wait
            self._consumer.connection.connection.collapse()
        self._consumer.hub.reset()
        finish_writes(self._consumer.pool)
        self._listen()

    def _listen(self) -> None:
        hub = self._consumer.hub
        watch_all_processes(self._consumer.pool)
        self._consumer.controller.register_with_event_loop(hub)
        hub.add_reader(self._ledger.fd, self._guard.on_replies)
        self._guard.on_replies()


def give_back_unbegun(consumer: RedriveConsumer) -> None:
    """What no pool process has begun goes back, uncounted."""
    guard = consumer.guard
    guard.give_back_waiting()
    if consumer.controller and consumer.controller.semaphore:
        consumer.controller.semaphore.clear()
    for bucket in consumer.task_buckets.values():
        if bucket:
            bucket.clear_pending()
    unbegun = [request for request in guard.running() if not request.begun]
    drop_unwritten(consumer.pool)
    for request in unbegun:
        _forget(request)
        request.finish(Returned())


def _forget(request: RedriveRequest) -> None:
    """Take a request out of Celery's books of what is reserved."""
    state.requests.pop(request.id, None)
    state.reserved_requests.discard(request)


def drop_unwritten(pool: Any) -> None:
    """Take the jobs that no pool process has begun to get out of the pool, which would wait for them."""
    if isinstance(pool, Threads):
        pool.drop_unbegun()
        return
    jobs = getattr(pool, "_pool", None)
    if jobs is None or not hasattr(jobs, "outbound_buffer"):
        return
    jobs.outbound_buffer.clear()
    for job in tuple(jobs._cache.values()):
        if not job._accepted and job._write_to is None:
            job.discard()


def replace_no_process(pool: Any) -> None:
    """Processes that end are not replaced: nothing more is to run."""
    jobs: Any = getattr(pool, "_pool", None)
    if hasattr(jobs, "_repopulate_pool"):
        jobs._repopulate_pool = lambda exit_codes: None


def watch_all_processes(pool: Any) -> None:
    """Have the hub, which was reset, watch every pool process again.

    The end of a process is seen a moment before it can be waited for. It is then watched no more until the
    pool is looked through; on it Celery 5.7.0 fails at each new connection, if one is lost meanwhile.
    """
    for process in tuple(getattr(getattr(pool, "_pool", None), "_pool", ())):
        if getattr(process, "_sentinel_poll", 0) is None:
            del process._sentinel_poll


def finish_writes(pool: Any) -> None:
    """Complete jobs that are partly written to a pool process: the hub's reset dropped their writers."""
    jobs: Any = getattr(pool, "_pool", None)
    for writer in tuple(getattr(jobs, "_active_writers", ())):
        for job in tuple(jobs._cache.values()):
            if job._write_to is not None and getattr(job, "_writer", lambda: None)() is writer:
                jobs._flush_writer(job._write_to, writer)
                jobs._active_writes.discard(job._write_to.inqW_fd)
                break


def _nothing() -> None:
    """Wakes the loop."""
