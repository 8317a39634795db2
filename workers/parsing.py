"""Messages as py-amqp reads them, with their raw bytes kept, and without its exceptions.

py-amqp raises on some properties (a header timestamp out of range, text that is not UTF-8) inside its frame
handler: the worker would lose its connection, and with it its whole prefetch window counts a delivery. Here
such a property list is taken apart by our own parser, which takes whatever a broker delivers.
"""

from __future__ import annotations

from typing import Any

from amqp.basic_message import Message
from amqp.serialization import GenericContent
from kombu.transport import pyamqp

from topology.wire import MalformedProperties, Properties, split
from topology.wire_properties import PROPERTY_NAMES


def install() -> None:
    """Make every message of this process keep its raw property list. Idempotent."""
    Message._load_properties = _load_properties


def _load_properties(self: Any, class_id: int, buf: bytes, offset: int) -> int:
    self.raw_properties = bytes(buf[offset:])
    self.unparsed = None
    try:
        end: int = GenericContent._load_properties(self, class_id, buf, offset)
    except Exception:  # noqa: BLE001 - about anything is raised, see above
        end = len(buf)
        try:
            self.properties = amqp_properties(split(self.raw_properties))
        except MalformedProperties as error:
            self.properties, self.unparsed = {}, error
    return end


def amqp_properties(found: Properties) -> dict[str, Any]:
    """As py-amqp names and holds them; values that Python has no type for are those of `topology.wire`."""
    made: dict[str, Any] = {}
    for name in PROPERTY_NAMES:
        value = getattr(found, name)
        if name == "headers" and value is not None:
            made["application_headers"] = found.headers_dict()
        elif value is not None:
            made[name] = found.text(name) if isinstance(value, bytes) else value
    return made


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


def redelivered(message: Any) -> bool:
    """Whether the broker had delivered it before, as far as it knows."""
    return bool((getattr(message, "delivery_info", None) or {}).get("redelivered"))
