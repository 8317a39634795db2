"""AMQP field values, from Python to raw bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from topology.errors import TopologyError
from topology.wire_values import EPOCH, LENGTH, OddText, OddTimestamp, Pairs, Unparsed


class NotEncodable(TopologyError):
    """A Python value has no AMQP field type that RabbitMQ takes."""


def encode_key(key: object) -> bytes:
    """A table key with its length octet. Raises NotEncodable above 255 bytes or for another type."""
    if not isinstance(key, str | bytes):
        raise NotEncodable(f"a header's name must be text: {key!r:.80}")
    return short_string(key, "a header's name")


def short_string(value: str | bytes, what: str) -> bytes:
    """`value` with its length octet; `what` names it in the NotEncodable raised above 255 bytes."""
    try:
        data = value.encode() if isinstance(value, str) else value
    except UnicodeEncodeError as error:
        raise NotEncodable(f"{what} is no valid Unicode: {value!r}") from error
    if len(data) > 255:
        raise NotEncodable(f"{what} is {len(data)} bytes long, AMQP allows 255: {data[:40]!r}…")
    return bytes([len(data)]) + data


def encode_value(value: object) -> bytes:
    """A Python value, or one that `decode_value` returned, as a raw value.

    Integers become `I` if they fit 32 bits, else `l`; floats `d`. Raises NotEncodable for what RabbitMQ
    would close the connection over (NaN, infinities) or AMQP cannot hold.
    """
    if type(value) is str:  # most are
        return _encode_text(value)
    match value:
        case None:
            return b"V"
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int():
            return _encode_integer(value)
        case float():
            if not math.isfinite(value):
                raise NotEncodable(f"RabbitMQ closes the connection over a header that is {value}")
            return struct.pack(">cd", b"d", value)
        case str():
            return _encode_text(value)
        case bytes():
            return _sized(b"x", value)
        case OddText():
            return _sized(b"S", value.raw)
        case Unparsed():
            return value.raw
        case Decimal():
            return _encode_decimal(value)
        case datetime() | OddTimestamp():
            return _encode_timestamp(value)
        case Mapping():
            return encode_table(tuple(value.items()))
        case Pairs():
            return encode_table(value.items)
        case list() | tuple():
            return _sized(b"A", b"".join(map(encode_value, value)))
    raise NotEncodable(f"no AMQP field type holds a {type(value).__name__}: {value!r:.80}")


def encode_table(items: Sequence[tuple[str | bytes, object]]) -> bytes:
    """A nested table as a raw value."""
    return _sized(b"F", b"".join(encode_key(key) + encode_value(value) for key, value in items))


def _sized(kind: bytes, data: bytes) -> bytes:
    return kind + LENGTH.pack(len(data)) + data


def _encode_text(value: str) -> bytes:
    try:
        return _sized(b"S", value.encode())
    except UnicodeEncodeError as error:
        raise NotEncodable(f"a header's text holds a lone surrogate: {value!r:.80}") from error


def _encode_integer(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return struct.pack(">ci", b"I", value)
    if -(2**63) <= value < 2**63:
        return struct.pack(">cq", b"l", value)
    raise NotEncodable(f"{value} does not fit the 64 bits of an AMQP integer")


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, int):
        scale = max(0, -exponent)
        unscaled = (
            int("".join(map(str, digits)) or "0") * 10 ** min(max(0, exponent), 10) * (-1 if sign else 1)
        )
        if scale <= 255 and exponent <= 10 and -(2**31) <= unscaled < 2**31:
            return struct.pack(">cBi", b"D", scale, unscaled)
    raise NotEncodable(f"{value} does not fit an AMQP decimal (32 bits and a scale up to 255)")


def _encode_timestamp(value: datetime | OddTimestamp) -> bytes:
    if isinstance(value, OddTimestamp):
        seconds = value.seconds
    elif value.tzinfo is None:
        raise NotEncodable(f"a header's time needs a time zone: {value.isoformat()}")
    else:
        seconds = (value - EPOCH) // timedelta(seconds=1)
    if not 0 <= seconds < 2**64:
        raise NotEncodable(f"{value} is before 1970, which an AMQP timestamp cannot say")
    return struct.pack(">cQ", b"T", seconds)
