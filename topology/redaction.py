"""Values that are taken out of a message before anything of it is written."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from topology.delivery import decompressed_body, delivery_of
from topology.delivery_fields import Refused
from topology.exact_json import dump, load
from topology.letter_document import COMPRESSION, REPRESENTED
from topology.messages import Message
from topology.wire import MalformedProperties, Properties, split

REDACTED = "[redacted]"
PARTS = ("args", "kwargs", "headers", "body")
ANY = "*"


@dataclass(frozen=True)
class FieldPath:
    """`part` is one of `PARTS`; `names` are keys or indexes below it, `*` each of them."""

    part: str
    names: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return self.text


def parse_paths(text: str) -> tuple[FieldPath, ...]:
    """Such as `kwargs.card.number, args.0.*, headers.authorization, body.password`.

    In a name a dot is %2E, a comma %2C, a percent sign %25.

    Raises:
        ValueError: a path is none; it is named.
    """
    paths = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        part, *names = each.split(".")
        if part not in PARTS or not names or not all(names):
            raise ValueError(
                f"{each!r} is no path of a field: args, kwargs, headers or body, then names,"
                " such as kwargs.card.number"
            )
        if part == "headers" and (len(names) > 1 or names == [ANY]):
            raise ValueError(f"{each!r}: one header is redacted, as a whole, such as headers.authorization")
        paths.append(FieldPath(part, tuple(map(unquote, names)), each))
    return tuple(dict.fromkeys(paths))


def redact(message: Message, paths: Sequence[FieldPath]) -> tuple[Message, tuple[str, ...]]:
    """The message with `REDACTED` in place of these values, and the paths at which there were some.

    A body that cannot be read as JSON, and properties that cannot be taken apart, are kept as they are. The
    headers that spell out a task's arguments are redacted where the body was, or cannot be read. A body that
    was in another encoding is in UTF-8 then, and its property says so.
    """
    try:
        properties = split(message.properties)
    except MalformedProperties:
        return message, ()
    found: list[str] = []
    for path in paths:
        if path.part == "headers" and _has(properties, path.names[0]):
            properties = properties.with_header(path.names[0], REDACTED)
            found.append(path.text)
    body, in_body, touched = _redacted_body(message, [path for path in paths if path.part != "headers"])
    if body != message.body:
        properties = _as_written(properties.without_headers((COMPRESSION,)))
    for header in REPRESENTED.values():
        if touched and _has(properties, header):
            properties = properties.with_header(header, REDACTED)
    if not (found or touched):
        return message, ()
    return Message(properties.encode(), body), (*found, *in_body)


def _redacted_body(message: Message, paths: Sequence[FieldPath]) -> tuple[bytes, list[str], bool]:
    """The body, the paths found in it, and whether its text may stand in headers too."""
    if not paths:
        return message.body, [], False
    try:
        value, repeated = _read(split(message.properties), message.body)
        found = [path.text for path in paths if _filled(value, path)]
        # Of a key that is there twice, one value is not looked at: it goes.
        return (dump(value), found, True) if found or repeated else (message.body, [], False)
    except (Refused, ValueError):
        return message.body, [], True


def _read(properties: Properties, body: bytes) -> tuple[Any, bool]:
    """The JSON of a body in UTF-8, in what its first bytes show (UTF-16, UTF-32), or in the encoding that it
    names. Raises Refused, ValueError."""
    text = decompressed_body(delivery_of(properties, body))
    try:
        return load(text)
    except ValueError as error:
        first = error
    for encoding in (json.detect_encoding(text), properties.text("content_encoding") or "utf-8"):
        try:
            if codecs.lookup(encoding).name != "utf-8":
                return load(text.decode(encoding).encode("utf-8", "surrogatepass"))
        except (LookupError, ValueError):
            continue
    raise first


def _as_written(properties: Properties) -> Properties:
    """With the encoding of the body that is written now, where another one is named."""
    named = (properties.text("content_encoding") or "").lower()
    ascii_names = ("", "utf-8", "utf8", "us-ascii", "ascii", "binary")
    return properties if named in ascii_names else properties._replace(content_encoding=b"utf-8")


def unfilled(message: Message, paths: Sequence[FieldPath]) -> list[str]:
    """At which of these paths the message still has `REDACTED`."""
    properties = split(message.properties)
    found = [
        path.text
        for path in paths
        if path.part == "headers" and properties.get_header(path.names[0]) == REDACTED
    ]
    try:
        value, _ = _read(properties, message.body)
    except (Refused, ValueError):
        return found
    in_body = (path for path in paths if path.part != "headers")
    return found + [
        path.text for path in in_body if any(place[key] == REDACTED for place, key in _spots(value, path))
    ]


def _filled(value: Any, path: FieldPath) -> bool:
    spots = list(_spots(value, path))
    for place, key in spots:
        place[key] = REDACTED
    return bool(spots)


def _spots(value: Any, path: FieldPath) -> Iterator[tuple[Any, Any]]:
    """Containers and keys at which the values stand. A task's message may have a wrong shape."""
    if path.part == "body":
        yield from _below(value, path.names)
    elif isinstance(value, dict):  # Celery's protocol 1
        yield from _below(value.get(path.part), path.names)
    elif isinstance(value, list):
        place = ("args", "kwargs").index(path.part)
        yield from _below(value[place] if place < len(value) else None, path.names)


def _below(value: Any, names: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
    name, *rest = names
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value) if name == ANY else [name] if name in value else []
    elif isinstance(value, list):
        if name == ANY:
            keys = list(range(len(value)))
        elif name.isdecimal() and len(name) < 10 and int(name) < len(value):
            keys = [int(name)]
    for key in keys:
        if rest:
            yield from _below(value[key], tuple(rest))
        else:
            yield value, key


def _has(properties: Properties, name: str) -> bool:
    return any(entry.key == name.encode() for entry in properties.headers or ())
