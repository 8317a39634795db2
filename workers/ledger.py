"""The worker's one voice to Postgres: claims and completions in batches, on one connection, in one thread.

The main thread hands over arrivals and outcomes and gets replies through a pipe that its event loop reads.
It settles a message only on such a reply: after the batch has committed and, where the message goes on,
after the broker has confirmed the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from storage.claims import StatementError, connect_for_claims
from storage.errors import DatabaseAwayError
from storage.pool import wait_for_database, where
from storage.worker_tasks import Registered, end, say
from topology.publisher import Publisher
from workers.arrival import Arrival
from workers.bookkeeping import START_S, Books
from workers.claiming import Terms
from workers.entries import Item, Reply
from workers.figures import WorkerFigures
from workers.gathering import LOOKS, Inbox, may_grow
from workers.outage import Outage
from workers.returning import Returns
from workers.sending_on import ROUND_S
from workers.sweeping import sweep
from workers.watching import Watch

if TYPE_CHECKING:
    from storage.claims import Connection
    from workers.settings import Environment

logger = logging.getLogger(__name__)
# Most of stopping that may pass in saying so.
END_S = 2.0


class Ledger:
    """Made and called on the main thread; lives in a thread of its own.

    `outstanding` counts the items that still owe a reply. `session` is the number of the broker connection;
    the main thread raises it at each reconnect. `processes` is the size of its pool.
    """

    def __init__(self, environment: Environment, worker: str, figures: WorkerFigures) -> None:
        self._figures = figures
        self._environment = environment
        self._worker = worker
        self._inbox = Inbox()
        self._replies: deque[Reply] = deque()
        self._rung = False
        self._poked = False
        self._stopping = False
        self._outage = Outage(where(environment.storage))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="redrive-ledger", daemon=True)
        self.fd, self._poke_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.ready = threading.Event()
        self.outstanding = 0
        self.closing = False  # this worker stops
        self.session = 0
        self.processes = 0
        self.renewed_at = time.monotonic()
        self._registered: Registered | None = None
        self._said: Registered | None = None

    # Main thread

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def reached(self) -> bool:
        """Whether Postgres is there."""
        return self.ready.is_set() and self.alive and not self._outage.away

    def submit(self, item: Item) -> None:
        """Hand over; the answer comes through `replies()` once `fd` is readable."""
        self._figures.handed_over(item)
        self._inbox.put(item)
        self.outstanding += 1
        self._ring()

    def note(self, item: Item) -> None:
        """Hand over what is not urgent and has no answer."""
        self._figures.handed_over(item)
        self._inbox.put(item)

    def register(self, registered: Registered) -> None:
        """Which tasks this worker has: they are put on record."""
        self._registered = registered
        self._ring()

    def replies(self) -> Iterator[Reply]:
        """The replies so far. Called when `fd` is readable."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)
        self._poked = False
        while self._replies:
            reply = self._replies.popleft()
            if reply.arrival is not None:
                self.outstanding -= 1
            self._figures.answered(reply)
            yield reply

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the thread. What is outstanding stays undone: its messages are unacked."""
        self._stopping = True
        self._ring()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _ring(self) -> None:
        loop, bell = self._loop, self._bell
        if loop is not None and bell is not None and not self._rung:
            self._rung = True
            with contextlib.suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(bell.set)

    # Ledger's thread

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except DatabaseAwayError:
            logger.warning("stopped while the database was away", extra={"action": "ledger_stopped"})
        except Exception as error:
            logger.critical("the ledger failed; this worker stops", exc_info=error)
            self._reply(Reply("failed", detail=repr(error)))
        self.ready.set()

    def _reply(self, reply: Reply) -> None:
        self._replies.append(reply)
        if not self._poked:
            self._poked = True
            with contextlib.suppress(BlockingIOError):  # full: it is readable
                os.write(self._poke_fd, b"\0")

    def _current(self, arrival: Arrival) -> bool:
        return arrival.session == self.session

    def _drain(self) -> Sequence[Item]:
        self._rung = False
        return self._inbox.take()

    async def _live(self) -> None:
        self._loop, self._bell = asyncio.get_running_loop(), asyncio.Event()
        settings, broker = self._environment.worker, self._environment.broker
        watch = Watch(settings.renew_s, settings.lease_s)

        missed: list[str] = []

        def say(text: str) -> None:
            missed.append(text)
            logger.warning(text, extra={"action": "database_away"})

        waiting = asyncio.ensure_future(wait_for_database(self._environment.storage, say))
        while not waiting.done():
            if self._stopping:
                waiting.cancel()
                return
            await asyncio.wait({waiting}, timeout=0.2)
        await waiting
        if missed:
            watch.back()
        publisher = Publisher(broker.address, f"redrive-ledger {self._worker}")
        await publisher.start()
        terms = Terms(self._worker, settings.lease_s, settings.crash_bound)
        returns = Returns(publisher, broker.time_scale, self._current, lambda: self._reply(Reply("widen")))
        books = Books(
            self._environment.topology, terms, broker.time_scale, returns, self._reply, self._bell.set
        )
        connection: Connection | None = None
        try:
            connection = await self._connected(books)
            self.ready.set()
            while not self._stopping:
                if not self._outage.away:
                    await self._work(books, watch.renew_at)
                books.take(self._drain())
                try:
                    await self._turn(books, connection, watch)
                except DatabaseAwayError as error:
                    connection.terminate()
                    self._away(error)
                    connection = await self._connected(books)
                    watch.back()
        finally:
            await books.close()
            await publisher.close()
            if connection is not None:
                await self._say_end(connection)
                connection.terminate()

    async def _say_end(self, connection: Connection) -> None:
        if self._stopping and not self._outage.away:
            with contextlib.suppress(DatabaseAwayError, StatementError):  # then it counts as lost
                await end(connection, self._worker, timeout_s=END_S)

    async def _turn(self, books: Books, connection: Connection, watch: Watch) -> None:
        if watch.renewal_due:
            await books.renew(connection)
            self._said = None
            watch.renewed()
            self.renewed_at = time.monotonic()
        if self._registered is not None and self._registered != self._said:
            self._said = self._registered
            try:
                await say(connection, self._worker, self._registered)
            except StatementError as error:  # letters then say less, nothing is lost
                logger.warning("not put on record: %s", error, extra={"action": "tasks_unsaid"})
        await books.turn(connection, watch.doubt_s)
        await books.record_starts(connection)
        if self._outage.away:
            self._outage.over()
            self._reply(Reply("resume"))
        if watch.sweep_due:
            settings, topology = self._environment.worker, self._environment.topology
            await sweep(connection, topology, lease_s=settings.lease_s, crash_bound=settings.crash_bound)
            watch.swept()

    async def _work(self, books: Books, renew_at: float) -> None:
        """Return when there is something to do, and a moment later, so that a batch gathers."""
        assert self._bell is not None
        if not books.backlog and not self._inbox:
            longest = START_S if books.held else max(renew_at - time.monotonic(), 0.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(longest):
                    await self._bell.wait()
        self._bell.clear()
        batch_ms, begun = self._environment.worker.batch_ms, time.monotonic()
        while True:
            await asyncio.sleep(batch_ms / LOOKS / 1000)
            waited_ms = (time.monotonic() - begun) * 1000
            if not may_grow(waited_ms, batch_ms, books.held - self._inbox.ends, self.processes):
                return

    def _away(self, error: DatabaseAwayError) -> None:
        if self._outage.failed(error):
            self._reply(Reply("pause"))

    async def _connected(self, books: Books) -> Connection:
        """A connection, after however long. Meanwhile nothing new is consumed and nothing is given up."""
        while True:
            if self._outage.away:
                await asyncio.sleep(self._outage.pause_s())
                books.take(self._drain())
                books.hand_over(everything=self.closing)
            try:
                return await connect_for_claims(self._environment.storage, f"redrive-ledger {self._worker}")
            except Exception as failed:  # noqa: BLE001 - whatever it is, waiting is all that can be done
                error = DatabaseAwayError(f"{type(failed).__name__}: {failed}")
            self._away(error)
            books.take(self._drain())
            if self._stopping:
                raise error
            if self.closing or self._outage.lasts_s > self._environment.worker.patience_s:
                books.send_unclaimed_round(ROUND_S)
