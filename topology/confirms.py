"""The unsettled publishes of a channel, and what the broker's confirms and returns mean for them. No I/O."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from topology.broker_errors import BrokerError, Nacked, Unroutable
from topology.headers import PUBLISH, REPLAY
from topology.wire import split

MAX_MESSAGES = 2_000
MAX_BYTES = 16 * 1024 * 1024


class Flight:
    """One publish, from the call to its outcome in `done`."""

    __slots__ = (
        "body",
        "deadline",
        "done",
        "exchange",
        "number",
        "properties",
        "reply_text",
        "routing_key",
        "token",
    )

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        token: str,
        done: asyncio.Future[None],
        deadline: float,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body = body
        self.token = token
        self.done = done
        self.deadline = deadline
        self.number = 0
        self.reply_text: str | None = None

    @property
    def sent(self) -> bool:
        return self.number > 0

    @property
    def size(self) -> int:
        return len(self.properties) + len(self.body)

    def fail(self, error: BrokerError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Confirms:
    """The flights of one channel in confirm mode, numbered from 1 as the broker numbers them."""

    def __init__(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self._flights: OrderedDict[int, Flight] = OrderedDict()
        self._by_token: dict[str, list[Flight]] = {}
        self._last_number = 0
        self._messages = self._bytes = 0

    def __len__(self) -> int:
        """How many are waited for."""
        return self._messages

    @property
    def has_room(self) -> bool:
        """One more may be sent. Bounds what is buffered here; a single message is never too much."""
        return self._messages < self._max_messages and self._bytes < self._max_bytes

    def sent(self, flight: Flight) -> None:
        """`flight` has just been written to the channel."""
        self._last_number += 1
        flight.number = self._last_number
        self._flights[flight.number] = flight
        # A list: a publish may be tried again under its token while the first try is still unsettled.
        self._by_token.setdefault(flight.token, []).append(flight)
        self._messages += 1
        self._bytes += flight.size

    def abandon(self, flight: Flight) -> None:
        """Nobody waits for it any more. Its number and token stay, so that a late answer finds it and no
        other; its room is free, so that one stuck queue does not stop the publishes to all others."""
        if self._flights.get(flight.number) is flight and flight.size:
            self._messages -= 1
            self._bytes -= flight.size
            flight.properties = flight.body = b""

    def confirmed(self, number: int, multiple: bool, taken: bool) -> None:
        """basic.ack (`taken`) or basic.nack for one, or for all up to `number`; 0 with `multiple` is all."""
        if not multiple:
            numbers = [number] if number in self._flights else []
        else:
            numbers = []
            for open_number in self._flights:
                if number and open_number > number:
                    break
                numbers.append(open_number)
        for settled in numbers:
            flight = self._remove(settled)
            if flight.done.done():
                continue
            if flight.reply_text is not None:
                flight.fail(Unroutable(flight.exchange, flight.routing_key, flight.reply_text))
            elif taken:
                flight.done.set_result(None)
            else:
                flight.fail(Nacked(flight.exchange, flight.routing_key))

    def returned(self, reply_text: str, properties: bytes) -> bool:
        """basic.return; the broker's confirm for the same message follows. False if its token is unknown."""
        found = split(properties)
        for name in (REPLAY, PUBLISH):
            token = found.get_header(name)
            for flight in self._by_token.get(token, ()) if isinstance(token, str) else ():
                if flight.reply_text is None:
                    flight.reply_text = reply_text
                    return True
        return False

    def fail_all(self, error: Callable[[], BrokerError]) -> None:
        """The channel is gone; each flight gets an exception of its own."""
        for number in list(self._flights):
            self._remove(number).fail(error())

    def _remove(self, number: int) -> Flight:
        flight = self._flights[number]
        self.abandon(flight)
        del self._flights[number]
        same = self._by_token[flight.token]
        same.remove(flight)
        if not same:
            del self._by_token[flight.token]
        return flight
