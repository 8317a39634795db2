"""What can go wrong between us and the broker, sorted by what is known of the message.

`NotSent`: it never left, so it may be sent again. `Refused`: the broker said that it did not take it.
`OutcomeUnknown`: it left and was never confirmed, so the broker may have it.
"""

from __future__ import annotations

from topology.errors import TopologyError


class BrokerError(TopologyError):
    """Root of the three."""


class NotSent(BrokerError):
    """Certainly not sent."""


class Refused(BrokerError):
    """Certainly not taken by the broker."""


class OutcomeUnknown(BrokerError):
    """Sent and not confirmed: taken or not, nobody can tell."""


class BrokerAway(NotSent):
    """There is no usable connection to the broker."""


class NotPublishable(NotSent):
    """This message would make the broker close the connection, for everyone who shares it."""


class PropertiesTooLarge(NotPublishable):
    """The property list, headers included, does not fit one frame."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the properties take {size} bytes, one frame of this connection holds {limit}")
        self.size = size
        self.limit = limit


class PublishTimeout(NotSent):
    """The time was up before the message could be written."""

    def __init__(self, exchange: str, routing_key: str, timeout_s: float, waited_for: str) -> None:
        super().__init__(
            f"not sent to {_target(exchange, routing_key)} within {timeout_s:g} s: waited for {waited_for}"
        )
        self.waited_for = waited_for


class Unroutable(Refused):
    """No queue is bound for this routing key (mandatory publish returned)."""

    def __init__(self, exchange: str, routing_key: str, reply_text: str) -> None:
        super().__init__(f"{_target(exchange, routing_key)}: {reply_text}: no queue takes it")
        self.exchange = exchange
        self.routing_key = routing_key
        self.reply_text = reply_text


class Nacked(Refused):
    """The broker refused responsibility (basic.nack), as when a queue that rejects publishes is full."""

    def __init__(self, exchange: str, routing_key: str) -> None:
        super().__init__(f"{_target(exchange, routing_key)}: refused by the broker (basic.nack)")
        self.exchange = exchange
        self.routing_key = routing_key


class ChannelClosed(OutcomeUnknown):
    """The broker closed the channel: 404 for a missing exchange or queue, 406 for a message too large, ….

    Everything that was in flight on the channel gets this error, the culprit and the others alike.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the broker closed the channel: {code} {text}")
        self.code = code
        self.text = text


class IsStream(ChannelClosed):
    """It is a stream: it keeps what is acknowledged, and shows a consumer only what comes after it."""

    def __str__(self) -> str:
        return "it is a stream, which keeps what is acknowledged; take a quorum or a classic queue"


class ConnectionLost(OutcomeUnknown):
    """The connection went away between sending and the confirm."""


class ConfirmTimeout(OutcomeUnknown):
    """The message was written and the broker did not confirm it in time."""

    def __init__(self, exchange: str, routing_key: str, timeout_s: float) -> None:
        super().__init__(f"{_target(exchange, routing_key)}: sent, but not confirmed within {timeout_s:g} s")


def _target(exchange: str, routing_key: str) -> str:
    return f"exchange {exchange!r}, key {routing_key!r}" if exchange else f"queue {routing_key!r}"
