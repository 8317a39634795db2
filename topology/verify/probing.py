"""Sends probes and waits for them, beside whatever else the broker does."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from topology.address import AmqpAddress
from topology.broker_errors import BrokerError
from topology.channel import BrokerChannel, Delivery, QueueState
from topology.connection import BrokerConnection, connect
from topology.drained import drained_state
from topology.names import UNROUTED_DLQ
from topology.probe import Arrival, Probe, arrival, parse_answer, probe_message, probe_of
from topology.publisher import Publisher
from topology.verify.check import Check, failed
from topology.verify.legs import Leg, Way
from topology.verify.verdict import Evidence, absent, arrived, before, latest_s

NAME = "redrive-topology-verify"
# For an answer to come, a waiting probe to expire at its queue's head included.
PATIENCE_S = 10.0
PRIORITY = 9


@dataclass
class Probing:
    """One run. `under_way` are the probes that have not come out, with the moment they are to be out by."""

    address: AmqpAddress
    legs: Sequence[Leg]
    ways: Sequence[Way]
    evidence: Evidence
    under_way: dict[UUID, tuple[Leg, float, float]] = field(default_factory=dict)
    _checks: dict[str, Check] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def patience_s(self) -> float:
        return min(PATIENCE_S, max(self.evidence.wait_s, 1.0))

    async def run(self) -> list[Check]:
        """A check for each leg, in their order.

        Raises:
            BrokerError: the broker is away, or went away.
        """
        connection = await connect(self.address, NAME)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(connection.close)
            channel = await connection.channel()
            own = await self._listen(channel)
            stack.push_async_callback(self._stop_listening, channel, own)
            names = self._existing(self.legs)
            ends = names & {name for leg in self.legs if leg.ends_in for name in (leg.ends_in, UNROUTED_DLQ)}
            counts = await _counts(connection, names - ends)
            counts |= {name: await drained_state(connection, name, alone=True) for name in sorted(ends)}
            publisher = Publisher(self.address, f"{NAME}-publish")
            await publisher.start()
            stack.push_async_callback(publisher.close)
            for leg in self.legs:
                if (hindrance := before(leg, counts, self.evidence)) is not None:
                    self._checks[leg.path] = hindrance
                else:
                    await self._send(publisher, leg, own)
            await self._until_all_came(connection)
            states = await _counts(connection, self._existing([leg for leg, _, _ in self.under_way.values()]))
        now = asyncio.get_running_loop().time()
        for leg, sent_at, _ in self.under_way.values():
            self._checks[leg.path] = absent(leg, now - sent_at, states, self.evidence)
        return [self._checks[leg.path] for leg in self.legs]

    def _existing(self, legs: Collection[Leg]) -> set[str]:
        named = {name for leg in legs for name in (leg.consumed, *leg.needs) if name is not None}
        return named & self.evidence.live.queues.keys()

    async def _listen(self, channel: BrokerChannel) -> str:
        own = await channel.declare_own()
        for way in self.ways:
            await channel.bind(own, way.exchange, way.routing_key)

        def take(delivery: Delivery) -> None:
            channel.ack(delivery.tag)
            if (probe := probe_of(delivery.properties, delivery.body)) is not None:
                self._came(arrival(probe, "", delivery.properties))
            elif (answer := parse_answer(delivery.body)) is not None:
                self._came(answer)

        await channel.consume(own, take)
        return own

    async def _stop_listening(self, channel: BrokerChannel, own: str) -> None:
        """Before the queue goes with its connection: a dead letter on its way into a queue that is deleted
        stays where it died until the broker tries again, after 3 minutes."""
        with suppress(BrokerError):
            for way in self.ways:
                await channel.unbind(own, way.exchange, way.routing_key)
            await channel.passive_declare(own)  # answered after what is on its way

    def _came(self, news: Arrival) -> None:
        if (found := self.under_way.pop(news.probe, None)) is None:
            return  # a second copy, or another's
        leg, sent_at, _ = found
        seconds = asyncio.get_running_loop().time() - sent_at
        self._checks[leg.path] = arrived(leg, news, seconds, self.evidence)
        self._news.set()

    async def _send(self, publisher: Publisher, leg: Leg, own: str) -> None:
        probe = Probe(uuid4(), own)
        waits = leg.consumed is not None
        message = probe_message(
            probe,
            expires_ms=round(self.patience_s * 1000) if waits else None,
            priority=PRIORITY if waits else None,
        )
        sent_at = asyncio.get_running_loop().time()
        self.under_way[probe.id] = leg, sent_at, sent_at + latest_s(leg, self.patience_s)
        try:
            await publisher.publish(leg.exchange, leg.routing_key, message, str(probe.id))
        except BrokerError as error:
            self.under_way.pop(probe.id, None)
            fix = "Is an alternate exchange missing, or the broker short of memory or disk?"
            self._checks[leg.path] = failed(leg.path, leg.queue, f"the probe was not taken: {error}", fix)

    async def _until_all_came(self, connection: BrokerConnection) -> None:
        loop, closed = asyncio.get_running_loop(), connection.closed
        while self.under_way:
            left_s = max(by for _, _, by in self.under_way.values()) - loop.time()
            if left_s <= 0:
                return
            self._news.clear()
            news = asyncio.ensure_future(self._news.wait())
            waits: set[asyncio.Future[Any]] = {news, closed}
            try:
                await asyncio.wait(waits, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                news.cancel()
            if closed.done():
                raise closed.result()


async def _counts(connection: BrokerConnection, queues: Collection[str]) -> dict[str, QueueState]:
    return {name: await connection.inspect(name) for name in sorted(queues)}
