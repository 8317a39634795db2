"""Stored bytes for reading: everything here is derived, and is JSON whatever the bytes are."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from topology.body_kind import body_kind
from topology.deaths import deaths
from topology.wire import MalformedProperties, Properties, split
from topology.wire_properties import PROPERTY_NAMES

MAX_SHOWN_BYTES = 256 * 1024
# Deeper JSON is shown as text: a reader's parser may have a limit too.
MAX_SHOWN_DEPTH = 100
# Backslashes before a lone surrogate, or before what would read as the spelling of one.
_AMBIGUOUS = re.compile(r"(?<!\\)(\\*+)(?:([\ud800-\udfff])|(?=ud[89a-f][0-9a-f]{2}))")


# https://www.rabbitmq.com/amqp-0-9-1-errata, section 3
_TYPES = {
    b"t": "bool", b"b": "int8", b"B": "uint8", b"U": "int16", b"s": "int16", b"u": "uint16", b"I": "int32",
    b"i": "uint32", b"L": "int64", b"l": "int64", b"f": "float", b"d": "double", b"D": "decimal",
    b"S": "string", b"x": "bytes", b"A": "array", b"T": "timestamp", b"F": "table", b"V": "void",
}  # fmt: skip


@dataclass(frozen=True)
class LetterView:
    """What a letter's properties say. `headers` as `topology.wire.readable` spells them.

    `header_types` has the AMQP type of each, in their order; a name that is not UTF-8 is escaped.
    """

    headers: object
    deaths: list[dict[str, object]]
    properties: dict[str, object]
    header_types: tuple[tuple[str, str], ...] = ()


def view_properties(raw: bytes) -> LetterView:
    """The readable form of a raw property list; headers of a malformed one: `$malformed` and `$hex`."""
    try:
        properties = split(raw)
    except MalformedProperties as error:
        return LetterView({"$malformed": str(error), "$hex": raw.hex()}, [], {})
    history: list[dict[str, object]] = [
        {
            "queue": death.queue,
            "reason": death.reason,
            "exchange": death.exchange,
            "routing_keys": list(death.routing_keys),
            "count": death.count,
            "time": death.time.isoformat() if death.time else None,
            "words": death.words,
        }
        for death in deaths(properties)
    ]
    types = tuple(
        (entry.key.decode("utf-8", "backslashreplace"), _TYPES.get(entry.value[:1], "unknown"))
        for entry in properties.headers or ()
    )
    return LetterView(properties.readable_headers(), history, _others(properties), types)


def _others(properties: Properties) -> dict[str, object]:
    shown: dict[str, object] = {}
    for name in PROPERTY_NAMES:
        value = getattr(properties, name)
        if name != "headers" and value is not None:
            shown[name] = properties.text(name) if isinstance(value, bytes) else value
    return shown


def view_letter(raw: bytes, body: bytes) -> dict[str, object]:
    """Everything that a dossier shows of a letter's bytes, by name."""
    view = view_properties(raw)
    kind = body_kind(raw, body)
    return {
        "headers": view.headers,
        "deaths": view.deaths,
        "properties": view.properties,
        "header_types": view.header_types,
        "body": view_body(body) | ({} if kind is None else {"kind": kind}),
    }


def view_body(body: bytes) -> dict[str, object]:
    """`{"json": …}`, `{"text": …}` or `{"hex": …}`, with `"truncated": true` where not all is shown."""
    cut = len(body) > MAX_SHOWN_BYTES
    shown = body[:MAX_SHOWN_BYTES]
    more: dict[str, object] = {"truncated": True} if cut else {}
    try:
        text = shown.decode("utf-8")
    except UnicodeDecodeError as error:
        # A cut may fall inside a character; anything else that is not UTF-8 is not text.
        if not (cut and error.start >= len(shown) - 3):
            return {"hex": shown[: MAX_SHOWN_BYTES // 2].hex()} | more
        text = shown[: error.start].decode("utf-8")
    if not cut:
        try:
            parsed = json.loads(text, object_pairs_hook=_pairs, parse_constant=lambda name: {"$float": name})
            return {"json": _plain(parsed, 0)}
        except (ValueError, RecursionError):
            pass
    return {"text": text} | more


class _Repeated(list[tuple[str, Any]]):
    """An object that names a key twice."""


def _pairs(pairs: list[tuple[str, Any]]) -> object:
    made = dict(pairs)
    return made if len(made) == len(pairs) else _Repeated(pairs)


def _plain(value: Any, depth: int) -> object:
    """What strict JSON in UTF-8 can say. Raises ValueError beyond `MAX_SHOWN_DEPTH`."""
    if depth > MAX_SHOWN_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": "Infinity" if value > 0 else "-Infinity"}  # such as 1e400
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, _Repeated):
        return {"$pairs": [[_whole(key), _plain(item, depth + 1)] for key, item in value]}
    if isinstance(value, dict):
        return {_whole(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    return value


def _whole(text: str) -> str:
    """Lone surrogates spelled out: UTF-8 has no bytes for them. Backslashes before a spelling are doubled, so
    that two keys which differ stay two.
    """
    return _AMBIGUOUS.sub(_spelled, text)


def _spelled(match: re.Match[str]) -> str:
    return match[1] * 2 + (f"\\u{ord(match[2]):04x}" if match[2] else "")
