"""One dead-letter queue: take its lock, consume, store, then ack. Whatever goes wrong ends the session."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from dlq_consumer.batches import BatchLimits, collect
from dlq_consumer.broker_link import BrokerLink
from dlq_consumer.intake import Intake, Result
from dlq_consumer.probes import ProbeAnswers, sort_out
from dlq_consumer.waiting import event_or_timeout
from storage.errors import DatabaseAwayError, StorageError
from storage.sessions import Locks, Session, SessionLostError, Source
from topology.backoff import Backoff
from topology.broker_errors import BrokerError, ChannelClosed
from topology.channel import BrokerChannel, Delivery

log = logging.getLogger(__name__)
STANDBY_S = 1.0
NOT_FOUND = 404


class QueueGone(Exception):
    """The queue is missing, or the broker has cancelled the consumer."""


class NothingStorable(Exception):
    """Postgres refused every letter of a batch, also as bytes: something else than the letters is wrong."""


class QueueDrain:
    """Drains one queue for as long as `run` is not cancelled.

    A session is one holding of the lock and one channel: within it each delivery is a new letter. When the
    channel, the lock or the database is lost, what was not acked returns to the queue, once, and the next
    session recognises what was stored.
    """

    def __init__(
        self, queue: str, *, link: BrokerLink, locks: Locks, intake: Intake, probes: ProbeAnswers,
        limits: BatchLimits,
        prefetch: int, consumer: str, stopping: asyncio.Event,
    ) -> None:  # fmt: skip
        self._queue = queue
        self._link = link
        self._locks = locks
        self._intake = intake
        self._probes = probes
        self._limits = limits
        self._prefetch = prefetch
        self._consumer = consumer
        self._stopping = stopping
        self._backoff = Backoff(first_s=0.2, most_s=15.0)
        self._said = ""

    async def run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._one_session()
            except QueueGone as error:
                self._say("queue_missing", f"waiting for queue {self._queue}: {error}")
            except BrokerError as error:
                self._say("broker_lost", f"stopped draining {self._queue}: {error}")
            except (DatabaseAwayError, SessionLostError) as error:
                self._say("database_lost", f"stopped draining {self._queue}: {error}")
                if self._locks.lost.is_set():
                    return
            except (NothingStorable, StorageError) as error:
                self._say("not_storable", f"stopped draining {self._queue}: {error}")
            else:
                continue
            await event_or_timeout(self._stopping, self._backoff.next_s())

    async def _one_session(self) -> None:
        connection = await self._link.connection()
        source = Source(connection.cluster, self._link.vhost, self._queue)
        session = await self._locks.take_queue(source, self._consumer)
        if session is None:
            self._say("standby", f"standing by for {self._queue}: another consumer drains it")
            await event_or_timeout(self._stopping, STANDBY_S)
            return
        try:
            channel = await connection.channel(self._prefetch)
            try:
                await self._consume(channel, session)
            finally:
                # First the letters go back, then the lock: its next holder is to see them.
                await channel.close()
        finally:
            await self._locks.release_queue(session)

    async def _consume(self, channel: BrokerChannel, session: Session) -> None:
        deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        try:
            consumer = await channel.consume(self._queue, deliveries.put_nowait)
        except ChannelClosed as error:
            if error.code == NOT_FOUND:
                raise QueueGone("it does not exist. Run: topology apply") from error
            raise
        self._say("draining", f"draining {self._queue}", session=session.id)
        stopping, lost = _task(self._stopping.wait()), _task(self._locks.lost.wait())
        endings: set[asyncio.Future[Any]] = {channel.closed, consumer.cancelled, stopping, lost}
        some_held = False
        try:
            while True:
                batch = _task(collect(deliveries, self._limits))
                try:
                    await asyncio.wait({batch, *endings}, return_when=asyncio.FIRST_COMPLETED)
                    if any(ending.done() for ending in endings):
                        break
                finally:
                    batch.cancel()
                some_held |= await self._settle(channel, session, batch.result(), one_by_one=some_held)
        finally:
            stopping.cancel()
            lost.cancel()
        if lost.done() and not lost.cancelled():
            raise DatabaseAwayError("the lock connection was lost")
        if channel.closed.done():
            raise channel.closed.result()
        if consumer.cancelled.done():
            raise QueueGone(consumer.cancelled.result())

    async def _settle(
        self, channel: BrokerChannel, session: Session, batch: list[Delivery], *, one_by_one: bool
    ) -> bool:
        """Store the letters and answer the probes, then ack; whether some letters had to be held back."""
        probes, letters = sort_out(batch)
        result = await self._intake.store(session, letters) if letters else Result()
        if letters and len(result.held) == len(letters):
            raise NothingStorable("Postgres refuses every letter, also as bytes; see the log")
        if probes:
            await self._probes.answer(self._queue, probes)
        if result.held or one_by_one:
            for delivery in batch:
                if delivery.tag not in result.held:
                    channel.ack(delivery.tag)
        else:
            channel.ack(batch[-1].tag, multiple=True)
        self._backoff.reset()
        return bool(result.held)

    def _say(self, action: str, text: str, **fields: object) -> None:
        """Once for each change: a wait of hours is one line, not one a second."""
        if text != self._said:
            level = logging.INFO if action in ("draining", "standby") else logging.WARNING
            log.log(level, text, extra={"action": action, "queue": self._queue} | fields)
        self._said = text


def _task(coroutine: Any) -> asyncio.Task[Any]:
    return asyncio.ensure_future(coroutine)
