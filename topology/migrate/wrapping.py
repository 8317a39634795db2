"""How a message travels into the holding queue and back. Pure.

On the way in its properties are the content of a header, so that no expiration, CC or user id acts on the
way, and no broker changes a byte. Large ones go before the body, and the header says how long they are:
all headers have to fit one frame (131,072 bytes), and the body has to stay below the broker's limit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from topology.channel import Delivery
from topology.headers import DELIVERY_COUNTERS, MOVED, MOVED_KEY
from topology.wire import MalformedProperties, properties, split

PERSISTENT = 2
LARGE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is published: raw routing key and raw property list."""

    routing_key: bytes
    properties: bytes
    body: bytes


def packed(delivery: Delivery, holding: str) -> Outgoing:
    """For the holding queue, by the default exchange."""
    raw, body = delivery.properties, delivery.body
    moved: object = raw
    if len(raw) > LARGE:
        moved, body = len(raw), raw + body
    headers: dict[str, object] = {MOVED: moved, MOVED_KEY: os.fsencode(delivery.routing_key)}
    wrapped = properties(headers=headers, delivery_mode=PERSISTENT)
    return Outgoing(holding.encode(), wrapped.encode(), body)


def unpacked(delivery: Delivery, user: str) -> Outgoing:
    """As it was, less the broker's delivery counters, and less a `user_id` other than `user`: the broker
    would close the channel over it. What reached the holding queue through an exchange goes on as it came."""
    key, raw, body = os.fsencode(delivery.routing_key), delivery.properties, delivery.body
    if delivery.exchange == "":  # only what we packed came by the default exchange
        found = split(raw)
        moved, moved_key = found.get_header(MOVED), found.get_header(MOVED_KEY)
        if isinstance(moved, bytes) and isinstance(moved_key, bytes):
            key, raw = moved_key, moved
        elif isinstance(moved, int) and isinstance(moved_key, bytes):
            key, raw, body = moved_key, body[:moved], body[moved:]
    return Outgoing(key, _sendable(raw, user), body)


def _sendable(raw: bytes, user: str) -> bytes:
    try:
        found = split(raw)
    except MalformedProperties:
        return raw
    kept = found.without_headers(DELIVERY_COUNTERS)
    if found.headers and not kept.headers:
        kept = kept.without("headers")  # the broker made the table for its counters
    if kept.user_id not in (None, user.encode()):
        kept = kept.without("user_id")
    return raw if kept == found else kept.encode()
