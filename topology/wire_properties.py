"""The property list of a message, byte for byte.

pika decodes headers with loss (doubles become integers, text that is not UTF-8 changes its type) and takes a
timestamp out of range for a lost connection. Here a list is cut into properties and header entries without
decoding a value, and put together again exactly.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from topology.wire_encode import NotEncodable, encode_key, encode_value, short_string
from topology.wire_readable import readable
from topology.wire_values import (
    HeaderEntry,
    MalformedProperties,
    decode_key,
    decode_value,
    split_table,
    table_value,
)

_TEXT, _HEADERS, _OCTET, _TIME = "text", "headers", "octet", "time"
# Bytes of the length before a value; an octet and a time have one length.
_HEADS = {_TEXT: 1, _HEADERS: 4, _OCTET: 0, _TIME: 0}
# Order and flag bits: AMQP 0-9-1 specification, class basic.
_LAYOUT = tuple(
    (name, 1 << (15 - position), kind)
    for position, (name, kind) in enumerate(
        [
            ("content_type", _TEXT),
            ("content_encoding", _TEXT),
            ("headers", _HEADERS),
            ("delivery_mode", _OCTET),
            ("priority", _OCTET),
            ("correlation_id", _TEXT),
            ("reply_to", _TEXT),
            ("expiration", _TEXT),
            ("message_id", _TEXT),
            ("timestamp", _TIME),
            ("type", _TEXT),
            ("user_id", _TEXT),
            ("app_id", _TEXT),
            ("cluster_id", _TEXT),
        ]
    )
)
PROPERTY_NAMES = tuple(name for name, _, _ in _LAYOUT)
_BITS = {name: bit for name, bit, _ in _LAYOUT}
_TEXT_NAMES = frozenset(name for name, _, kind in _LAYOUT if kind == _TEXT)
_KNOWN_FLAGS = sum(_BITS.values())
_MORE_FLAGS = 1


class Properties(NamedTuple):
    """The 14 basic properties; None means absent. Texts are the bytes that travelled, `timestamp` is in
    seconds since 1970, `headers` None means no table at all, () an empty one.

    A tuple, as all that is made for each message: a frozen dataclass takes four times as long to make.
    """

    content_type: bytes | None = None
    content_encoding: bytes | None = None
    headers: tuple[HeaderEntry, ...] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: bytes | None = None
    reply_to: bytes | None = None
    expiration: bytes | None = None
    message_id: bytes | None = None
    timestamp: int | None = None
    type: bytes | None = None
    user_id: bytes | None = None
    app_id: bytes | None = None
    cluster_id: bytes | None = None
    undefined_flags: tuple[int, ...] = (0,)
    """Per flag word, the bits that name no property: kept, so that `encode` gives back what was split."""

    def encode(self) -> bytes:
        """The property list, flags included. Raises NotEncodable if a value does not fit its field."""
        flags, pieces = self.undefined_flags[0], []
        for name, bit, kind in _LAYOUT:
            if (value := getattr(self, name)) is not None:
                flags |= bit
                pieces.append(_encode_property(name, kind, value))
        words = (flags, *self.undefined_flags[1:])
        return struct.pack(f">{len(words)}H", *words) + b"".join(pieces)

    def text(self, name: str) -> str | None:
        """A text property for reading: bytes that are not UTF-8 are spelled out (`\\xff`)."""
        if name not in _TEXT_NAMES:
            raise KeyError(f"{name!r} is no text property; those are {', '.join(sorted(_TEXT_NAMES))}")
        value: bytes | None = getattr(self, name)
        return None if value is None else value.decode(errors="backslashreplace")

    def without(self, *names: str) -> Properties:
        """The same without these properties, such as "expiration"."""
        if unknown := set(names) - _BITS.keys():
            raise KeyError(f"no such property: {', '.join(sorted(unknown))}")
        absent: dict[str, Any] = {name: None for name in names if getattr(self, name) is not None}
        if not absent:
            return self
        return self._replace(**absent)

    def without_headers(self, names: Collection[str]) -> Properties:
        """The same without these headers; the others keep bytes and order."""
        if self.headers is None:
            return self
        keys = _keys(tuple(names))
        kept = tuple(entry for entry in self.headers if entry.key not in keys)
        return self if len(kept) == len(self.headers) else self._replace(headers=kept)

    def with_header(self, name: str, value: object) -> Properties:
        """The same with this header: in the place of one of that name, or last. Raises NotEncodable."""
        return self.with_headers({name: value})

    def with_headers(self, values: Mapping[str, object]) -> Properties:
        """The same for several headers."""
        wanted = {}
        for name, value in values.items():
            key = _key(name)
            wanted[key] = HeaderEntry(key, encode_value(value))
        kept, missing = [], dict(wanted)
        for old in self.headers or ():
            if old.key not in wanted:
                kept.append(old)
            elif (entry := missing.pop(old.key, None)) is not None:
                kept.append(entry)
        return self._replace(headers=(*kept, *missing.values()))

    def get_header(self, name: str) -> object:
        """The decoded value, None when absent; of a repeated header the first, which is the one that
        RabbitMQ routes by."""
        key = name.encode()
        return next((entry.decode() for entry in self.headers or () if entry.key == key), None)

    def headers_dict(self, without: Collection[str] = ()) -> dict[str | bytes, object]:
        """All headers decoded but those `without`; of a repeated one the first. Keys that are not UTF-8 stay
        bytes."""
        found: dict[str | bytes, object] = {}
        for key, value in self.headers or ():
            name = _name(key)
            if name not in found and name not in without:
                found[name] = decode_value(value)
        return found

    def readable_headers(self) -> object:
        """All headers as JSON can say them, in their order, none left out; see `readable`."""
        return readable(table_value(self.headers or ()))


def _encode_property(name: str, kind: str, value: object) -> bytes:
    if isinstance(value, bytes):
        return short_string(value, f"the property {name}")
    if isinstance(value, tuple):
        table = b"".join([_sized_key(key) + data for key, data in value])
        return struct.pack(">I", len(table)) + table
    try:
        return struct.pack(">Q" if kind == _TIME else ">B", value)
    except struct.error as error:
        raise NotEncodable(f"the property {name} cannot be {value!r}") from error


@lru_cache(maxsize=512)
def _key(name: str) -> bytes:
    """Remembered: our messages have the same headers."""
    return encode_key(name)[1:]


def properties(*, headers: dict[str, object] | None = None, **values: str | int | None) -> Properties:
    """Properties from Python values: texts as str, `delivery_mode`, `priority`, `timestamp` as int.

    Raises NotEncodable for a header that AMQP cannot hold, TypeError for an unknown property.
    """
    raw: dict[str, Any] = {k: v.encode() if isinstance(v, str) else v for k, v in values.items()}
    if headers:
        raw["headers"] = tuple(HeaderEntry(_key(k), encode_value(v)) for k, v in headers.items())
    return Properties(**raw)


def split(raw: bytes) -> Properties:
    """Cut a property list. Never looks into values, so odd ones do no harm.

    Raises MalformedProperties if a length does not fit the list.
    """
    words, offset = _flag_words(raw)
    flags, size = words[0], len(raw)
    values: list[Any] = [None] * len(_LAYOUT)
    for index, head, fixed in _present(flags & _KNOWN_FLAGS):
        begin = offset + head
        if begin > size:
            name = PROPERTY_NAMES[index]
            raise MalformedProperties(f"the property {name} is cut short at byte {offset} of {size}")
        offset = begin + (int.from_bytes(raw[offset:begin]) if head else fixed)
        if offset > size:
            name = PROPERTY_NAMES[index]
            raise MalformedProperties(f"the property {name} ends at byte {offset} of {size}")
        data = raw[begin:offset]
        if head:
            values[index] = data if head == 1 else tuple(split_table(data))
        else:
            values[index] = int.from_bytes(data)
    if offset != size:
        raise MalformedProperties(f"{size - offset} bytes follow the last property")
    return Properties._make((*values, (flags & ~_KNOWN_FLAGS, *words[1:])))


@lru_cache(maxsize=256)
def _present(flags: int) -> tuple[tuple[int, int, int], ...]:
    """Of each property that is there: place, bytes of its length, and its size where that is fixed."""
    return tuple(
        (index, _HEADS[kind], 8 if kind == _TIME else 1)
        for index, (_, bit, kind) in enumerate(_LAYOUT)
        if flags & bit
    )


# The names are the same from one message to the next.
_name = lru_cache(maxsize=1_024)(decode_key)


@lru_cache(maxsize=64)
def _keys(names: tuple[str, ...]) -> frozenset[bytes]:
    return frozenset(name.encode() for name in names)


@lru_cache(maxsize=1_024)
def _sized_key(key: bytes) -> bytes:
    return bytes([len(key)]) + key


def _flag_words(raw: bytes) -> tuple[tuple[int, ...], int]:
    if len(raw) >= 2 and not raw[1] & _MORE_FLAGS:
        return (int.from_bytes(raw[:2]),), 2
    words: list[int] = []
    while not words or words[-1] & _MORE_FLAGS:
        offset = 2 * len(words)
        if offset + 2 > len(raw):
            raise MalformedProperties(f"the property flags are cut short at byte {len(raw)}")
        words.append(int.from_bytes(raw[offset : offset + 2]))
    return tuple(words), 2 * len(words)
