"""When two deliveries are the same letter."""

from __future__ import annotations

import hashlib

from topology.headers import DELIVERY_COUNTERS, PUBLISH, REPLAY
from topology.wire import MalformedProperties, Properties, split

# Headers that name one message: ours per publish, and Celery's task id.
_NAMING_HEADERS = (REPLAY, PUBLISH, "id")
_COUNTERS = frozenset(name.encode() for name in DELIVERY_COUNTERS)


def letter_key(source: str, properties: bytes, body: bytes, cut: Properties | None = None) -> bytes:
    """SHA-256 over all that stays the same when a queue delivers a letter once more.

    The delivery counters are left out. Two letters of one key may still be two: the same message,
    dead-lettered twice within a second, is the same in every field.

    Args:
        source: cluster, vhost and queue, as one text.
        cut: `split(properties)`, where that was done already.
    """
    try:
        kept = _without_counters(properties, cut or split(properties))
    except MalformedProperties:
        kept = properties
    digest = hashlib.sha256()
    for part in (source.encode(), kept, body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def _without_counters(raw: bytes, cut: Properties) -> bytes:
    if cut.headers and not any(name in raw for name in _COUNTERS):
        return raw
    counted = cut.without_headers(DELIVERY_COUNTERS)
    # A message without any header gets a table for the counters alone, at its second delivery.
    return (counted if counted.headers else counted.without("headers")).encode()


def has_identity(properties: Properties) -> bool:
    """Whether the sender named this message, so that an equal one is the same and not a second."""
    return bool(properties.message_id) or any(
        isinstance(name := properties.get_header(header), str) and name != "" for header in _NAMING_HEADERS
    )
