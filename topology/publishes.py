"""What is given to a publisher, and whether the broker would take it for one of ours."""

from __future__ import annotations

from typing import NamedTuple

from topology.broker_errors import NotPublishable
from topology.headers import PUBLISH, REPLAY
from topology.messages import Message
from topology.wire import MalformedProperties, NotEncodable, Properties, encode_value, split
from topology.wire_encode import short_string

_TOKENS = (REPLAY.encode(), PUBLISH.encode())


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
        headers, wanted = (cut or split(message.properties)).headers or (), encode_value(token)
    except (MalformedProperties, NotEncodable, UnicodeEncodeError) as error:
        raise NotPublishable(str(error)) from error
    # Compared as they travel: to decode each name and value took longer than all the rest. Of a repeated
    # header the first counts.
    names = [name for name, _ in headers]
    if not any(name in names and headers[names.index(name)].value == wanted for name in _TOKENS):
        raise NotPublishable(f"neither header {REPLAY} nor {PUBLISH} of the message is its token {token!r}")
