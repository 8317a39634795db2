"""Takes messages off a queue before any other consumer and sends them on: confirmed before acknowledged."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from topology.channel import BrokerChannel, Consumer, Delivery
from topology.connection import BrokerConnection
from topology.migrate.errors import MigrationError
from topology.migrate.wrapping import Outgoing

# Above any consumer of a worker. Messages in our hands return when we are killed, and that counts toward the
# queue's delivery limit: so not too many.
PRIORITY = 1_000
PREFETCH = 500
BATCH = 250
BATCH_BYTES = 16 * 1024 * 1024  # so that a batch of large messages is confirmed in time
CONFIRM_S = 60.0


class Siphon:
    """One source queue, one target. A message is in both, or in one: never in none."""

    def __init__(self, queue: str, exchange: str, prepare: Callable[[Delivery], Outgoing]) -> None:
        self._queue, self._exchange, self._prepare = queue, exchange.encode(), prepare
        self._waiting: deque[Delivery] = deque()
        self._arrived = asyncio.Event()
        self._clock = asyncio.get_running_loop().time
        self._outstanding: set[int] = set()
        self._published = 0
        self._refused = ""
        self._answered = asyncio.Event()
        self._ending = False
        self.moved = 0
        self.last_arrival = self._clock()
        self.last_direct: float | None = None
        """When a message came that somebody had published straight to the queue."""

    async def open(self, consuming: BrokerConnection, publishing: BrokerConnection) -> Self:
        self._out = await publishing.channel()
        await self._out.confirm(self._on_confirm, self._on_return)
        self._in: BrokerChannel = await consuming.channel(PREFETCH)
        self._consumer: Consumer = await self._in.consume(self._queue, self._on_delivery, priority=PRIORITY)
        return self

    async def close(self) -> None:
        """What was not sent on stays in the queue."""
        await self._in.close()
        await self._out.close()

    @property
    def idle_s(self) -> float:
        return 0.0 if self._waiting else self._clock() - self.last_arrival

    async def step(self, timeout_s: float = 0.2) -> None:
        """Move one batch, or wait for one.

        Raises:
            MigrationError: the target did not take a message.
            BrokerError: a connection or channel is gone.
        """
        if not self._waiting:
            self._arrived.clear()
            waits: set[asyncio.Future[Any]] = {
                asyncio.ensure_future(self._arrived.wait()),
                self._in.closed,
                self._consumer.cancelled,
            }
            done, _ = await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits - done:
                wait.cancel()
            if self._in.closed.done():
                raise self._in.closed.result()
            if self._consumer.cancelled.done() and not self._waiting and not self._ending:
                raise MigrationError(f"{self._queue}: somebody deleted it, or its leader is gone")
        batch: list[Delivery] = []
        size = 0
        while self._waiting and len(batch) < BATCH and size < BATCH_BYTES:
            batch.append(self._waiting.popleft())
            size += len(batch[-1].body)
        if batch:
            await self._send(batch)
            self._in.ack(batch[-1].tag, multiple=True)
            self.moved += len(batch)

    async def until_cancelled(self, timeout_s: float) -> None:
        """The queue is being deleted: take what the broker still handed over."""
        self._ending = True
        async with asyncio.timeout(timeout_s):
            while not (self._consumer.cancelled.done() and not self._waiting):
                await self.step()

    async def _send(self, batch: list[Delivery]) -> None:
        self._answered.clear()
        for delivery in batch:
            outgoing = self._prepare(delivery)
            self._published += 1
            self._outstanding.add(self._published)
            self._out.publish(self._exchange, outgoing.routing_key, outgoing.properties, outgoing.body)
        answered = asyncio.ensure_future(self._answered.wait())
        waits: set[asyncio.Future[Any]] = {answered, self._out.closed}
        done, _ = await asyncio.wait(waits, timeout=CONFIRM_S, return_when=asyncio.FIRST_COMPLETED)
        answered.cancel()
        if self._out.closed.done():
            raise self._out.closed.result()
        if not done:
            raise MigrationError(f"{self._queue}: the broker confirmed nothing for {CONFIRM_S:g} s")
        if self._refused:
            raise MigrationError(f"{self._queue}: a message could not be sent on: {self._refused}")

    def _on_delivery(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        self.last_arrival = self._clock()
        if delivery.exchange == "":
            self.last_direct = self.last_arrival
        self._arrived.set()

    def _on_confirm(self, tag: int, multiple: bool, taken: bool) -> None:
        if not taken:
            self._refused = self._refused or "refused by the broker (basic.nack)"
        gone = {each for each in self._outstanding if each <= tag} if multiple else {tag}
        self._outstanding -= gone
        if not self._outstanding:
            self._answered.set()

    def _on_return(self, reply: str, _properties: bytes) -> None:
        self._refused = self._refused or reply
