"""Making pika keep property lists as bytes instead of decoding them."""

from __future__ import annotations

from typing import Any

import pika.spec

from topology.wire_properties import PROPERTY_NAMES, Properties, split
from topology.wire_values import MalformedProperties

_BASIC_CLASS = 60


class RawProperties:
    """Stands where pika expects BasicProperties: `encode` sends `raw` as it is, `decode` keeps what arrived.

    Reading an attribute such as `headers` decodes it then, so that code written for pika's class goes on
    working beside ours.
    """

    CLASS = pika.spec.Basic
    INDEX = _BASIC_CLASS
    NAME = "BasicProperties"
    __slots__ = ("raw",)

    def __init__(self, raw: bytes = b"\x00\x00") -> None:
        self.raw = raw

    def decode(self, encoded: bytes, offset: int = 0) -> RawProperties:
        """Never raises: an exception here would end the connection."""
        self.raw = encoded[offset:]
        return self

    def encode(self) -> list[bytes]:
        return [self.raw]

    def split(self) -> Properties:
        """Raises MalformedProperties."""
        return split(self.raw)

    def __getattr__(self, name: str) -> Any:
        if name not in PROPERTY_NAMES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        try:
            found = split(self.raw)
        except MalformedProperties:
            return None
        if name == "headers":
            return None if found.headers is None else found.headers_dict()
        value = getattr(found, name)
        return found.text(name) if isinstance(value, bytes) else value

    def __repr__(self) -> str:
        return f"RawProperties({self.raw!r:.120})"


def install() -> None:
    """Have pika make RawProperties of every message it receives in this process. May be called again."""
    pika.spec.props[_BASIC_CLASS] = RawProperties
