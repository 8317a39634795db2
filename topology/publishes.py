"""What is given to a publisher, and whether the broker would take it for one of ours."""

from __future__ import annotations

from typing import NamedTuple

from topology.broker_errors import NotPublishable
from topology.headers import PUBLISH, REPLAY
from topology.messages import Message
from topology.wire import MalformedProperties, NotEncodable, Properties, split
from topology.wire_encode import short_string


class Publish(NamedTuple):
    """One message on its way. `token` and `cut` as in `topology.publisher.Publisher.publish`."""

    exchange: str
    routing_key: str
    message: Message
    token: str
    cut: Properties | None = None


def check(publish: Publish) -> None:
    """Raises NotPublishable for what would end the connection, or whose return nobody could match."""
    exchange, routing_key, message, token, cut = publish
    try:
        short_string(exchange.encode("utf-8", "surrogateescape"), "the exchange")
        short_string(routing_key.encode("utf-8", "surrogateescape"), "the routing key")
        found = cut or split(message.properties)
    except (MalformedProperties, NotEncodable, UnicodeEncodeError) as error:
        raise NotPublishable(str(error)) from error
    if token not in (found.get_header(REPLAY), found.get_header(PUBLISH)):
        raise NotPublishable(f"neither header {REPLAY} nor {PUBLISH} of the message is its token {token!r}")
