"""When two deliveries are the same letter."""

from __future__ import annotations

import hashlib

from topology.headers import DELIVERY_COUNTERS, PUBLISH, REPLAY
from topology.wire import MalformedProperties, Properties, split

# Headers that name one message: ours per publish, and Celery's task id.
_NAMING_HEADERS = (REPLAY, PUBLISH, "id")


def letter_key(source: str, properties: bytes, body: bytes) -> bytes:
    """SHA-256 over all that stays the same when a queue delivers a letter once more.

    The delivery counters are left out. Two letters of one key may still be two: the same message,
    dead-lettered twice within a second, is the same in every field.

    Args:
        source: cluster, vhost and queue, as one text.
    """
    try:
        counted = split(properties).without_headers(DELIVERY_COUNTERS)
        # A message without any header gets a table for the counters alone, at its second delivery.
        kept = (counted if counted.headers else counted.without("headers")).encode()
    except MalformedProperties:
        kept = properties
    digest = hashlib.sha256()
    for part in (source.encode(), kept, body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def has_identity(properties: Properties) -> bool:
    """Whether the sender named this message, so that an equal one is the same and not a second."""
    return bool(properties.message_id) or any(
        isinstance(name := properties.get_header(header), str) and name != "" for header in _NAMING_HEADERS
    )
