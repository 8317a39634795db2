"""Confirmed, mandatory, pipelined publishing that is bounded in time and survives the loss of the broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import NoReturn

from topology.address import AmqpAddress
from topology.backoff import Backoff, Say
from topology.broker_errors import (
    BrokerAway,
    BrokerError,
    ChannelClosed,
    ConfirmTimeout,
    ConnectionLost,
    NotPublishable,
    PropertiesTooLarge,
    PublishTimeout,
)
from topology.channel import BrokerChannel
from topology.confirms import Confirms, Flight
from topology.connection import BrokerConnection, connect_persistently
from topology.messages import Message
from topology.migrate.gate import is_gated
from topology.publishes import Publish, check
from topology.wire import Properties

log = logging.getLogger(__name__)
# A frame's own 8 bytes, and the class, weight and body size before the properties in a content header.
HEADER_FRAME_OVERHEAD = 8 + 12
STEADY_S = 5.0


class Publisher:
    """One connection with one channel in confirm mode, for any number of concurrent `publish` calls.

    Every publish ends within `timeout_s` seconds, and its exception tells what is known: `NotSent`, `Refused`
    or `OutcomeUnknown` (see `topology.broker_errors`). After `OutcomeUnknown` the caller decides whether the
    message may go out again.
    """

    def __init__(
        self, address: AmqpAddress, name: str, timeout_s: float = 10.0, *, say: Say = log.warning
    ) -> None:
        self._address, self._name, self._timeout_s, self._user_say = address, name, timeout_s, say
        self._connection: BrokerConnection | None = None
        self._channel: BrokerChannel | None = None
        self._confirms = Confirms()
        self._waits_for = f"RabbitMQ at {address}"
        self._queue: deque[Flight] = deque()
        self._by_deadline: deque[Flight] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._supervisor: asyncio.Task[NoReturn] | None = None
        self._closing = False

    @property
    def connected(self) -> bool:
        """A channel is open. It may still be blocked."""
        return self._channel is not None and self._channel.is_open

    @property
    def blocked(self) -> str | None:
        """The reason of the broker's alarm while it takes no messages."""
        return self._connection.blocked if self._connection else None

    async def start(self) -> None:
        """Begin to connect, and return at once: the broker may be away."""
        self._supervisor = asyncio.create_task(self._supervise(), name=f"publisher {self._name}")

    async def publish(
        self, exchange: str, routing_key: str, message: Message, token: str, *, cut: Properties | None = None
    ) -> None:
        """Publish, and return once the broker has taken responsibility for the message.

        Args:
            exchange: "" is the default exchange, where the routing key is a queue's name.
            token: the value of the message's header REPLAY or PUBLISH, by which a return is matched.
            cut: the message's properties as they were before they were encoded, where the caller has them.

        Raises:
            BrokerAway: no connection within the time, or the publisher is closing. Not sent.
            PublishTimeout: connected, but an alarm or earlier messages were in the way. Not sent.
            NotPublishable, PropertiesTooLarge: the broker would close the connection over it. Not sent.
            Unroutable: no queue is bound for it. Refused.
            Nacked: a queue rejected it. Refused.
            ChannelClosed: 404 missing exchange, 406 too large, …, by this publish or one beside it. Unknown.
            ConnectionLost: between sending and the confirm. Unknown.
            ConfirmTimeout: sent, and no answer within the time. Unknown.
        """
        self._require_running()
        flight = self._enqueue(Publish(exchange, routing_key, message, token, cut))
        self._pump()
        try:
            await flight.done
        except asyncio.CancelledError:
            self._confirms.abandon(flight)
            raise

    async def publish_all(self, publishes: Sequence[Publish]) -> list[BrokerError | None]:
        """Publish, in this order, and return what became of each: None once the broker has taken
        responsibility for it, else what `publish` raises. A fraction of the cost of a task for each.
        """
        self._require_running()
        flights: list[Flight | NotPublishable] = []
        for each in publishes:
            try:
                flights.append(self._enqueue(each))
            except NotPublishable as error:
                flights.append(error)
        self._pump()
        try:
            return [
                flight if isinstance(flight, NotPublishable) else await _outcome(flight) for flight in flights
            ]
        except asyncio.CancelledError:
            for flight in flights:
                if isinstance(flight, Flight):
                    flight.done.cancel()
                    self._confirms.abandon(flight)
            raise

    def _require_running(self) -> None:
        if self._closing or self._supervisor is None or self._supervisor.done():
            raise BrokerAway(f"the publisher {self._name} does not run (not started, or closed)")

    def _enqueue(self, publish: Publish) -> Flight:
        """To be pumped. Raises NotPublishable."""
        check(publish)
        exchange, routing_key, message, token, _ = publish
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        flight = Flight(
            exchange, routing_key, message.properties, message.body, token, loop.create_future(), deadline
        )
        self._by_deadline.append(flight)
        if self._timer is None:
            self._timer = loop.call_at(flight.deadline, self._expire)
        self._queue.append(flight)
        return flight

    async def is_gated(self, queue: str) -> bool:
        """Whether nothing is to be published straight to `queue` now (see `topology.migrate.gate`).

        Raises:
            BrokerAway: there is no connection to ask.
        """
        if self._connection is None or not self._connection.is_open:
            raise BrokerAway(f"the publisher {self._name} is not connected")
        return await is_gated(self._connection, queue)

    async def close(self) -> None:
        """Wait for what was sent, give up what was not (BrokerAway), disconnect."""
        self._closing = True
        for flight in self._queue:
            flight.fail(BrokerAway(f"the publisher {self._name} is closing"))
        self._queue.clear()
        if pending := {flight.done for flight in self._by_deadline if not flight.done.done()}:
            await asyncio.wait(pending)
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
        if self._timer is not None:
            self._timer.cancel()

    async def _supervise(self) -> NoReturn:
        backoff = Backoff()
        clock = asyncio.get_running_loop().time
        while True:
            connection = await connect_persistently(self._address, self._name, say=self._say, backoff=backoff)
            connected_at = clock()
            try:
                self._connection = connection
                connection.on_unblocked = self._pump
                while True:
                    await self._serve(connection)
            except BrokerError as error:
                self._say(f"lost RabbitMQ at {self._address}: {error}")
            finally:
                self._connection = None
                await connection.close()
            if clock() - connected_at >= STEADY_S:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())

    async def _serve(self, connection: BrokerConnection) -> None:
        """The life of one channel. Raises BrokerAway when the connection is gone."""
        channel = await connection.channel()
        confirms = Confirms()

        def on_confirm(number: int, multiple: bool, taken: bool) -> None:
            confirms.confirmed(number, multiple, taken)
            self._pump()

        def on_return(reply_text: str, properties: bytes) -> None:
            if not confirms.returned(reply_text, properties):
                log.error("a returned message matches no publish", extra={"action": "return_unmatched"})

        await channel.confirm(on_confirm, on_return)
        self._channel, self._confirms = channel, confirms
        self._pump()
        reason = await channel.closed
        self._channel = None
        if isinstance(reason, ChannelClosed):
            code, text = reason.code, reason.text
            confirms.fail_all(lambda: ChannelClosed(code, text))
        else:
            confirms.fail_all(lambda: ConnectionLost(f"sent, then the connection was lost: {reason}"))
            raise reason

    def _say(self, text: str) -> None:
        self._waits_for = text
        self._user_say(text)

    def _pump(self) -> None:
        """Write what waits, as far as the broker and the window allow."""
        _drop_finished(self._by_deadline)
        _drop_finished(self._queue)
        while self._queue and (channel := self._open_channel()) is not None:
            self._write(channel, self._queue.popleft())
            _drop_finished(self._queue)

    def _open_channel(self) -> BrokerChannel | None:
        if self._channel is None or not self._channel.is_open or self.blocked or not self._confirms.has_room:
            return None
        return self._channel

    def _write(self, channel: BrokerChannel, flight: Flight) -> None:
        assert self._connection is not None
        limit = self._connection.frame_max - HEADER_FRAME_OVERHEAD
        if len(flight.properties) > limit:
            flight.fail(PropertiesTooLarge(len(flight.properties), limit))
            return
        try:
            channel.publish(
                flight.exchange.encode("utf-8", "surrogateescape"),
                flight.routing_key.encode("utf-8", "surrogateescape"),
                flight.properties,
                flight.body,
            )
        except BrokerError as error:
            flight.fail(BrokerAway(str(error)))
        else:
            self._confirms.sent(flight)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while self._by_deadline and (
            self._by_deadline[0].deadline <= loop.time() or _finished(self._by_deadline[0])
        ):
            flight = self._by_deadline.popleft()
            flight.fail(self._timeout(flight))
            if flight.sent:
                self._confirms.abandon(flight)
        self._timer = loop.call_at(self._by_deadline[0].deadline, self._expire) if self._by_deadline else None
        self._pump()

    def _timeout(self, flight: Flight) -> BrokerError:
        if flight.sent:
            return ConfirmTimeout(flight.exchange, flight.routing_key, self._timeout_s)
        if not self.connected:
            return BrokerAway(f"not sent within {self._timeout_s:g} s: {self._waits_for}")
        waited_for = (
            f"the broker's alarm ({self.blocked})" if self.blocked else "the confirms of earlier messages"
        )
        return PublishTimeout(flight.exchange, flight.routing_key, self._timeout_s, waited_for)


async def _outcome(flight: Flight) -> BrokerError | None:
    # Confirms come in order: most are done when their turn comes, and cost no turn of the loop.
    try:
        await flight.done
    except BrokerError as error:
        return error
    return None


def _finished(flight: Flight) -> bool:
    return flight.done.done()


def _drop_finished(flights: deque[Flight]) -> None:
    while flights and _finished(flights[0]):
        flights.popleft()
