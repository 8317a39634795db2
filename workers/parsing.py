"""Messages as py-amqp reads them, with their raw bytes kept, and without its exceptions.

py-amqp raises on some properties (a header timestamp out of range, text that is not UTF-8) inside its frame
handler: the worker would lose its connection, and with it its whole prefetch window counts a delivery. Here
such a message is only marked; the guard rejects it.
"""

from __future__ import annotations

from typing import Any

from amqp.basic_message import Message
from amqp.serialization import GenericContent
from kombu.transport import pyamqp


def install() -> None:
    """Make every message of this process keep its raw property list. Idempotent."""
    Message._load_properties = _load_properties


def _load_properties(self: Any, class_id: int, buf: bytes, offset: int) -> int:
    self.raw_properties = bytes(buf[offset:])
    self.unparsed = None
    try:
        end: int = GenericContent._load_properties(self, class_id, buf, offset)
    except Exception as error:  # noqa: BLE001 - about anything is raised, see above
        self.properties = {}
        self.unparsed = error
        return len(buf)
    return end


class GuardedMessage(pyamqp.Message):
    """A delivered message with what was sent: `raw_properties` (flags included) and `raw_body`."""

    def __init__(self, msg: Any, channel: Any = None, **kwargs: Any) -> None:
        self.raw_properties: bytes = msg.raw_properties
        self.raw_body: bytes = msg.body or b""  # py-amqp has "" for an empty one
        self.unparsed: Exception | None = msg.unparsed
        # kombu decompresses without a limit; with an error at hand it does not. The check does, with one.
        self.errors = [None]
        super().__init__(msg, channel=channel, **kwargs)
        self.errors = []

    def settled(self) -> None:
        """It was acked by `workers.acking`."""
        self._state = "ACK"
