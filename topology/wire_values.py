"""AMQP field values, from raw bytes to Python.

A raw value is the type octet and what follows it, as in a header table. The types are those of RabbitMQ's
table grammar (https://www.rabbitmq.com/amqp-0-9-1-errata, section 3), all integers big endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from topology.errors import TopologyError

MAX_DEPTH = 64
"""Tables and arrays nested deeper stay bytes: a 128 KiB header can nest 20,000 deep, Python cannot."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIXED = {
    type_octet[0]: struct.Struct(">" + code)
    for type_octet, code in {
        b"t": "B", b"b": "b", b"B": "B", b"U": "h", b"s": "h", b"u": "H", b"I": "i", b"i": "I",
        b"L": "q", b"l": "q", b"f": "f", b"d": "d", b"D": "Bi", b"T": "Q", b"V": "",
    }.items()
}  # fmt: skip
_SIZED = frozenset(b"SxAF")
# Per type octet, the bytes of a value with its type octet: 0 where a length follows, -1 for an unknown type.
_SIZES = [0 if kind in _SIZED else 1 + _FIXED[kind].size if kind in _FIXED else -1 for kind in range(256)]
_LONG_STRING, _BYTES, _ARRAY, _TABLE, _VOID, _BOOLEAN, _DECIMAL, _TIME = b"SxAFVtDT"
LENGTH = struct.Struct(">I")


class MalformedProperties(TopologyError):
    """A length inside a property list points outside of it, or bytes are left over."""


@dataclass(frozen=True, slots=True)
class OddTimestamp:
    """A timestamp that `datetime` cannot hold, in seconds since 1970 (often they are milliseconds)."""

    seconds: int


@dataclass(frozen=True, slots=True)
class OddText:
    """A long string that is not UTF-8."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A value of an unknown type, cut short, or nested too deeply: type octet and all that follows."""

    raw: bytes


@dataclass(frozen=True, slots=True)
class Pairs:
    """A table that names a key twice, in its order."""

    items: tuple[tuple[str | bytes, object], ...]


def value_end(raw: bytes, offset: int, limit: int) -> int:
    """Where the value that starts at `offset` ends. A value of an unknown type takes all the rest.

    Raises MalformedProperties if it does not end by `limit`.
    """
    if offset >= limit:
        raise MalformedProperties(f"a header value is missing at byte {offset}")
    size = _SIZES[raw[offset]]
    if size > 0:
        end = offset + size
    elif size < 0:
        return limit
    elif offset + 5 > limit:
        raise MalformedProperties(f"the length of a header value is cut short at byte {offset}")
    else:
        end = offset + 5 + int.from_bytes(raw[offset + 1 : offset + 5])
    if end > limit:
        raise MalformedProperties(f"the header value at byte {offset} ends {end - limit} bytes too late")
    return end


def decode_key(raw: bytes) -> str | bytes:
    """A table key: text, or the bytes of a key that is not UTF-8."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def decode_value(raw: bytes) -> object:
    """One raw value as Python sees it. Never raises: what has no plain Python value comes back tagged
    (OddTimestamp, OddText, Unparsed, Pairs)."""
    # Most are such: the same as below, without a call or two.
    if raw[:1] == b"S" and int.from_bytes(raw[1:5]) == len(raw) - 5:
        return _text(raw[5:])
    return _scalar(raw) if raw and len(raw) == _SIZES[raw[0]] else _decode(raw, 0)


def _decode(raw: bytes, depth: int) -> object:
    size = len(raw)
    kind = raw[0] if size else -1
    if depth > MAX_DEPTH:
        return Unparsed(raw)
    if kind in _SIZED:
        if size < 5 or int.from_bytes(raw[1:5]) != size - 5:
            return Unparsed(raw)
        data = raw[5:]
        if kind == _LONG_STRING:
            return _text(data)
        if kind == _BYTES:
            return data
        try:
            return _array(data, depth) if kind == _ARRAY else _table(data, depth)
        except MalformedProperties:
            return Unparsed(raw)
    if size != _SIZES[kind]:  # 1 octet is missing at least, or the type is unknown
        return Unparsed(raw)
    return None if kind == _VOID else _number(kind, _FIXED[kind].unpack_from(raw, 1))


@lru_cache(maxsize=1_024)
def _scalar(raw: bytes) -> object:
    """A value of a few bytes that nobody can change."""
    return _decode(raw, 0)


def _text(data: bytes) -> str | OddText:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return OddText(data)


def _number(kind: int, parts: tuple[int, ...]) -> object:
    if kind == _BOOLEAN:
        return bool(parts[0])
    if kind == _DECIMAL:
        return Decimal(parts[1]).scaleb(-parts[0])
    if kind == _TIME:
        try:
            return EPOCH + timedelta(seconds=parts[0])
        except OverflowError:
            return OddTimestamp(parts[0])
    return parts[0]


def _array(data: bytes, depth: int) -> list[object]:
    values, offset = [], 0
    while offset < len(data):
        end = value_end(data, offset, len(data))
        values.append(_decode(data[offset:end], depth + 1))
        offset = end
    return values


class HeaderEntry(NamedTuple):
    """One header as it travels: its name, and its type octet with the value."""

    key: bytes
    value: bytes

    @property
    def name(self) -> str | bytes:
        """The key as text, or as bytes when it is not UTF-8."""
        return decode_key(self.key)

    def decode(self) -> object:
        """The value; see `decode_value`."""
        return decode_value(self.value)


def split_table(data: bytes) -> list[HeaderEntry]:
    """The entries of a table without its length, in order. Raises MalformedProperties."""
    entries: list[HeaderEntry] = []
    add, new, number = entries.append, tuple.__new__, int.from_bytes
    offset, limit, sizes = 0, len(data), _SIZES
    while offset < limit:
        start = offset + 1 + data[offset]
        if start > limit:
            raise MalformedProperties(f"a header key is cut short at byte {offset}")
        # Most values end so; the rest, and what is wrong, is told by `value_end`.
        end = 0
        if start < limit and (size := sizes[data[start]]) >= 0:
            end = start + (size or 5 + number(data[start + 1 : start + 5]))
        if not start < end <= limit or (end < start + 5 and not size):
            end = value_end(data, start, limit)
        add(new(HeaderEntry, (data[offset + 1 : start], data[start:end])))
        offset = end
    return entries


def table_value(entries: Sequence[HeaderEntry], depth: int = 0) -> dict[str | bytes, object] | Pairs:
    """A decoded table: a dict, or Pairs when a key stands in it twice."""
    items = [(decode_key(key), _decode(raw, depth + 1)) for key, raw in entries]
    table = dict(items)
    return table if len(table) == len(items) else Pairs(tuple(items))


def _table(data: bytes, depth: int) -> dict[str | bytes, object] | Pairs:
    return table_value(split_table(data), depth)
