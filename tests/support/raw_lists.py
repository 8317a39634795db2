"""A property list cut into its raw parts, by the AMQP 0-9-1 specification and none of our code: what says
whether a message kept its bytes."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass

# In the order of their flags, from bit 15 on. https://www.rabbitmq.com/resources/specs/amqp0-9-1.pdf, 1.8.3
_FIELDS = {
    "content_type": "s", "content_encoding": "s", "headers": "F", "delivery_mode": "B", "priority": "B",
    "correlation_id": "s", "reply_to": "s", "expiration": "s", "message_id": "s", "timestamp": "Q",
    "type": "s", "user_id": "s", "app_id": "s", "cluster_id": "s",
}  # fmt: skip
# https://www.rabbitmq.com/amqp-0-9-1-errata, section 3
_FIXED = {
    b"t": 1, b"b": 1, b"B": 1, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"f": 4,
    b"l": 8, b"L": 8, b"d": 8, b"T": 8, b"D": 5, b"V": 0,
}  # fmt: skip
_SIZED = b"SxAF"


@dataclass(frozen=True)
class RawList:
    """`fields`: raw bytes of all but the headers. `headers`: None where there is no table."""

    fields: dict[str, bytes]
    headers: list[tuple[bytes, bytes]] | None


def cut(raw: bytes) -> RawList:
    """Raises an error for what does not end where it should."""
    (flags,) = struct.unpack_from(">H", raw)
    assert not flags & 1, "further flags"
    place, fields, headers = 2, {}, None
    for bit, (name, kind) in zip(range(15, 1, -1), _FIELDS.items(), strict=True):
        if not flags & 1 << bit:
            continue
        if kind == "F":
            (size,) = struct.unpack_from(">I", raw, place)
            headers = _entries(raw[place + 4 : place + 4 + size])
            place += 4 + size
            continue
        size = 1 + raw[place] if kind == "s" else struct.calcsize(">" + kind)
        fields[name] = raw[place : place + size]
        place += size
    assert place == len(raw), (place, len(raw))
    return RawList(fields, headers)


def normal(value: bytes, depth: int = 0) -> object:
    """A value with its type, but for what RabbitMQ changes itself: `L` becomes `l`, any true bool 1, tables
    are sorted, and 4.3 keeps one of several entries with one name. What lies over 50 deep is raw."""
    kind = value[:1]
    if depth > 50:
        return value
    if kind == b"t":
        return kind, value[1:] != b"\0"
    if kind == b"F":
        entries = _entries(value[5:])
        keys = Counter(key for key, _ in entries)
        return kind, {key: normal(each, depth + 1) if keys[key] == 1 else None for key, each in entries}
    if kind == b"A":
        return kind, [normal(each, depth + 1) for each in _items(value[5:])]
    return (b"l" if kind == b"L" else kind), value[1:]


def _entries(table: bytes) -> list[tuple[bytes, bytes]]:
    found, place = [], 0
    while place < len(table):
        start = place + 1 + table[place]
        end = _end(table, start)
        found.append((table[place + 1 : start], table[start:end]))
        place = end
    assert place == len(table), (place, len(table))
    return found


def _items(array: bytes) -> list[bytes]:
    found, place = [], 0
    while place < len(array):
        end = _end(array, place)
        found.append(array[place:end])
        place = end
    return found


def _end(data: bytes, start: int) -> int:
    kind = data[start : start + 1]
    if kind in _SIZED:
        return start + 5 + int(struct.unpack_from(">I", data, start + 1)[0])
    return start + 1 + _FIXED[kind]
