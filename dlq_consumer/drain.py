"""One dead-letter queue: take its lock, consume, store, then ack. Whatever goes wrong ends the session."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Any

from dlq_consumer.batches import BatchLimits
from dlq_consumer.broker_link import BrokerLink
from dlq_consumer.figures import ConsumerFigures
from dlq_consumer.hearing import Hearing
from dlq_consumer.held import QUEUE_SHARE, Held, Inbox, Window
from dlq_consumer.intake import Intake, Result, Unread
from dlq_consumer.probes import ProbeAnswers, sort_out
from dlq_consumer.reading import Reading
from dlq_consumer.waiting import event_or_timeout
from storage.errors import DatabaseAwayError, StorageError
from storage.sessions import Locks, Session, SessionLostError, Source
from topology.backoff import Backoff
from topology.broker_errors import BrokerError, ChannelClosed
from topology.channel import BrokerChannel, Consumer, Delivery
from topology.connection import BrokerConnection
from topology.probe import Probe

log = logging.getLogger(__name__)
STANDBY_S = 1.0
NOT_FOUND = 404
MISSING = "it does not exist. Run: topology apply"


class QueueGone(Exception):
    """The queue is missing or another one, or the broker has cancelled the consumer."""


class NothingStorable(Exception):
    """Postgres refused every letter of a batch, also as bytes: something else than the letters is wrong."""


@dataclass(frozen=True)
class _Batch:
    """What came together: probes, and letters that were read."""

    deliveries: list[Delivery]
    probes: list[tuple[Probe, Delivery]]
    readings: list[Reading | Unread]


class QueueDrain:
    """Drains one queue for as long as `run` is not cancelled.

    A session is one holding of the lock and one channel: within it each delivery is a new letter. When the
    channel, the lock or the database is lost, what was not acked returns to the queue, once, and the next
    session recognises what was stored.
    """

    def __init__(
        self, queue: str, *, shown: str, link: BrokerLink, locks: Locks, intake: Intake, probes: ProbeAnswers,
        limits: BatchLimits, held: Held, figures: ConsumerFigures,
        prefetch: int, consumer: str, stopping: asyncio.Event,
    ) -> None:  # fmt: skip
        self._queue = queue
        self._shown = shown
        self._link = link
        self._locks = locks
        self._intake = intake
        self._probes = probes
        self._limits = limits
        self._held = held
        self._figures = figures
        self._prefetch = prefetch
        self._consumer = consumer
        self._stopping = stopping
        self._backoff = Backoff(first_s=0.2, most_s=15.0)
        self._said = ""
        self.hearing = Hearing(held)

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._one_session()
            except QueueGone as error:
                self._say("queue_missing", f"waiting for queue {self._shown}: {error}")
            except BrokerError as error:
                self._say("broker_lost", f"stopped draining {self._shown}: {error}")
            except (DatabaseAwayError, SessionLostError) as error:
                self._say("database_lost", f"stopped draining {self._shown}: {error}")
                if self._locks.lost.is_set():
                    return
            except (NothingStorable, StorageError) as error:
                self._say("not_storable", f"stopped draining {self._shown}: {error}")
            else:
                continue
            await event_or_timeout(self._stopping, self._backoff.next_s())

    async def _one_session(self) -> None:
        connection = await self._link.connection()
        source = Source(connection.cluster, self._link.vhost, self._queue)
        session = await self._locks.take_queue(source, self._consumer)
        if session is None:
            self._say("standby", f"standing by for {self._shown}: another consumer drains it")
            await event_or_timeout(self._stopping, STANDBY_S)
            return
        try:
            window = Window(self._prefetch, self._held.most // QUEUE_SHARE)
            channel = await connection.channel(window.size)
            inbox = Inbox(self._held)
            self.hearing.begins(inbox)
            try:
                await self._consume(connection, channel, session, inbox, window)
            finally:
                self.hearing.ends()
                inbox.close()
                # First the letters go back, then the lock: its next holder is to see them.
                await channel.close()
        finally:
            await self._locks.release_queue(session)

    async def _consume(
        self,
        connection: BrokerConnection,
        channel: BrokerChannel,
        session: Session,
        inbox: Inbox,
        window: Window,
    ) -> None:
        consumer = await self._start(channel, inbox)
        self._say("draining", f"draining {self._shown}", session=session.id)
        prefetch = window.size
        stopping, lost = _task(self._stopping.wait()), _task(self._locks.lost.wait())
        deaf = self.hearing.deaf
        endings = [channel.closed, stopping, lost, deaf, consumer.cancelled]
        changing: asyncio.Task[Consumer] | None = None
        # One waits here while one is stored and one is read: so neither the database nor this process idles.
        ready: asyncio.Queue[_Batch] = asyncio.Queue(maxsize=1)
        reader = _task(self._read_on(session, inbox, window, ready))
        batch: asyncio.Task[_Batch] = _task(ready.get())
        some_held = False
        try:
            while True:
                waits = {batch, reader, *_heeded(endings, inbox), *([changing] if changing else ())}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if changing is not None and changing.done():
                    try:
                        consumer = changing.result()
                        endings[-1] = consumer.cancelled
                    except QueueGone as error:  # deleted meanwhile: what is in hand comes first
                        endings[-1] = _done(str(error))
                    changing = None
                elif any(ending.done() for ending in _heeded(endings, inbox)):
                    break
                if not batch.done():
                    if reader.done():
                        reader.result()
                    continue
                taken = batch.result()
                batch = _task(ready.get())
                some_held |= await self._settle(channel, session, taken, one_by_one=some_held)
                inbox.settled(taken.deliveries)
                window.seen(taken.deliveries)
                if window.size != prefetch and changing is None and not endings[-1].done():
                    prefetch = window.size
                    # Beside the work: while too much is in hand, the broker's answers are not read either.
                    changing = _task(self._restart(connection, channel, consumer, inbox, window.size))
        finally:
            for task in (stopping, lost, changing, reader, batch):
                if task is not None:
                    task.cancel()
            await asyncio.gather(reader, batch, return_exceptions=True)
        if lost.done() and not lost.cancelled():
            raise DatabaseAwayError("the lock connection was lost")
        if channel.closed.done():
            raise channel.closed.result()
        for gone in (endings[-1], deaf):
            if gone.done():
                raise QueueGone(gone.result())

    async def _read_on(
        self, session: Session, inbox: Inbox, window: Window, ready: asyncio.Queue[_Batch]
    ) -> None:
        while True:
            await ready.put(await self._next(session, inbox, window))

    async def _next(self, session: Session, inbox: Inbox, window: Window) -> _Batch:
        """In quarters of the window: one is stored, one waits for that, one is read, the broker fills one."""
        letters = min(self._limits.letters, (window.size + 3) // 4)
        deliveries = await inbox.batch(replace(self._limits, letters=letters))
        probes, found = sort_out(deliveries)
        return _Batch(deliveries, probes, await self._intake.read(session, found))

    async def _start(self, channel: BrokerChannel, inbox: Inbox) -> Consumer:
        try:
            return await channel.consume(self._queue, inbox.put)
        except ChannelClosed as error:
            if error.code == NOT_FOUND:
                raise QueueGone(MISSING) from error
            raise

    async def _restart(
        self,
        connection: BrokerConnection,
        channel: BrokerChannel,
        consumer: Consumer,
        inbox: Inbox,
        prefetch: int,
    ) -> Consumer:
        """A prefetch holds for the consumers started after it: https://www.rabbitmq.com/docs/consumer-prefetch"""
        await channel.cancel(consumer)
        await channel.qos(prefetch)
        # Asked on another channel: a missing queue would take this one with it, and the letters in hand.
        await self._require(connection)
        return await self._start(channel, inbox)

    async def _require(self, connection: BrokerConnection) -> None:
        try:
            await connection.inspect(self._queue)
        except ChannelClosed as error:
            if error.code == NOT_FOUND:
                raise QueueGone(MISSING) from error
            raise

    async def _settle(
        self, channel: BrokerChannel, session: Session, batch: _Batch, *, one_by_one: bool
    ) -> bool:
        """Store the letters and answer the probes, then ack; whether some letters had to be held back."""
        letters = batch.readings
        result = await self._intake.store(session, letters) if letters else Result()
        self._figures.drained(self._shown, result)
        if letters and len(result.held) == len(letters):
            raise NothingStorable("Postgres refuses every letter, also as bytes; see the log")
        if batch.probes:
            await self._probes.answer(self._queue, batch.probes)
        if result.held or one_by_one:
            for delivery in batch.deliveries:
                if delivery.tag not in result.held:
                    channel.ack(delivery.tag)
        else:
            channel.ack(batch.deliveries[-1].tag, multiple=True)
        self._backoff.reset()
        return bool(result.held)

    def _say(self, action: str, text: str, **fields: object) -> None:
        """Once for each change: a wait of hours is one line, not one a second."""
        if text != self._said:
            level = logging.INFO if action in ("draining", "standby") else logging.WARNING
            log.log(level, text, extra={"action": action, "queue": self._queue} | fields)
        self._said = text


def _heeded(endings: list[asyncio.Future[Any]], inbox: Inbox) -> list[asyncio.Future[Any]]:
    """All but the consumer's, the last, while letters are in hand: a deleted queue's are nowhere else."""
    return endings[:-1] if inbox.letters else endings


def _done(reason: str) -> asyncio.Future[str]:
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    found.set_result(reason)
    return found


def _task(coroutine: Any) -> asyncio.Task[Any]:
    return asyncio.ensure_future(coroutine)
