"""JSON Patch (RFC 6902) over JSON Pointer (RFC 6901)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from decimal import Decimal
from typing import Any

from topology.exact_json import Number

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_ESCAPE = re.compile(r"~(?![01])")
Patch = list[dict[str, Any]]
# Bytes that the copies of one patch make, about: each may double what is there, thirty fill a machine.
MOST_COPIED = 16 * 1024 * 1024
_OF_A_VALUE = 64


class PatchError(ValueError):
    """A patch that is none, or that does not fit the document; says which operation."""


def apply(document: Any, patch: Any) -> Any:
    """The document as patched; the given one is left as it is.

    Raises:
        PatchError: no operation has taken effect then.
    """
    if not isinstance(patch, list):
        raise PatchError("a patch is a list of operations (RFC 6902)")
    value, room = deepcopy(document), _Room()
    for number, operation in enumerate(patch):
        try:
            value = _applied(value, operation, room)
        except PatchError as error:
            raise PatchError(f"operation {number}: {error}") from None
    return value


def diff(old: Any, new: Any) -> Patch:
    """A patch from one document to the other: members added, removed and replaced, at the deepest place."""
    return list(_changes(old, new, ""))


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 is 1.0, and is not true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return _exact(one) == _exact(other)
    return type(one) is type(other) and bool(one == other)


def _exact(number: float) -> Decimal:
    return Decimal(number.text if isinstance(number, Number) else number)


class _Room:
    """What copies may still make."""

    def __init__(self) -> None:
        self._left = MOST_COPIED

    def take(self, value: Any) -> None:
        waiting = [value]
        while waiting:
            found = waiting.pop()
            self._left -= _OF_A_VALUE
            if isinstance(found, str):
                self._left -= len(found)
            elif isinstance(found, Number):
                self._left -= len(found.text)
            elif isinstance(found, int):
                self._left -= found.bit_length() // 3
            elif isinstance(found, dict):
                self._left -= sum(map(len, found))
                waiting += found.values()
            elif isinstance(found, list):
                waiting += found
            if self._left < 0:
                raise PatchError(f"copies make more than {MOST_COPIED:,} bytes")


def _applied(document: Any, operation: Any, room: _Room) -> Any:
    if not isinstance(operation, dict):
        raise PatchError("is no object")
    kind, path = operation.get("op"), _pointer(operation, "path")
    if kind in ("add", "replace", "test"):
        if "value" not in operation:
            raise PatchError(f"{kind!r} needs a value")
        value = deepcopy(operation["value"])
        if kind == "add":
            return _put(document, path, value)
        found = _get(document, path)
        if kind == "replace":
            return _put(document, path, value, instead=True)
        if not same(found, value):
            raise PatchError(f"the test of {operation['path']!r} fails")
        return document
    if kind == "remove":
        return _taken(document, path)
    if kind in ("move", "copy"):
        source = _pointer(operation, "from")
        value = _get(document, source)
        if kind == "copy":
            room.take(value)
            value = deepcopy(value)
        if kind == "move":
            if path[: len(source)] == source and len(path) > len(source):
                raise PatchError("a value cannot be moved into itself")
            document = _taken(document, source) if source else document
        return _put(document, path, value)
    raise PatchError(f"op is {kind!r}; there are add, remove, replace, move, copy and test")


def _pointer(operation: dict[str, Any], name: str) -> list[str]:
    text = operation.get(name)
    if not isinstance(text, str) or (text and not text.startswith("/")) or _ESCAPE.search(text):
        raise PatchError(f"{name} is {text!r}, which is no JSON pointer such as /kwargs/amount")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(document: Any, path: list[str]) -> Any:
    for depth, name in enumerate(path):
        if isinstance(document, dict) and name in document:
            document = document[name]
        elif isinstance(document, list) and _INDEX.fullmatch(name) and int(name) < len(document):
            document = document[int(name)]
        else:
            raise PatchError(f"there is nothing at {_text(path[: depth + 1])!r}")
    return document


def _put(document: Any, path: list[str], value: Any, *, instead: bool = False) -> Any:
    """The document with the value there; `instead` of what is known to stand there."""
    if not path:
        return value
    place, name = _get(document, path[:-1]), path[-1]
    if isinstance(place, dict):
        place[name] = value
    elif instead:
        place[int(name)] = value
    elif isinstance(place, list):
        if name != "-" and not (_INDEX.fullmatch(name) and int(name) <= len(place)):
            raise PatchError(f"{_text(path)!r} is no place in a list of {len(place)}")
        place.insert(len(place) if name == "-" else int(name), value)
    else:
        raise PatchError(f"{_text(path[:-1])!r} is neither an object nor a list")
    return document


def _taken(document: Any, path: list[str]) -> Any:
    """The document without what stands there."""
    if not path:
        raise PatchError("the whole document cannot be removed")
    _get(document, path)
    place, name = _get(document, path[:-1]), path[-1]
    del place[name if isinstance(place, dict) else int(name)]
    return document


def _text(path: list[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def _changes(old: Any, new: Any, path: str) -> Iterator[dict[str, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            below = f"{path}{_text([key])}"
            if key in new:
                yield from _changes(old[key], new[key], below)
            else:
                yield {"op": "remove", "path": below}
        for key in new:
            if key not in old:
                yield {"op": "add", "path": f"{path}{_text([key])}", "value": new[key]}
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(min(len(old), len(new))):
            yield from _changes(old[index], new[index], f"{path}/{index}")
        for index in reversed(range(len(new), len(old))):
            yield {"op": "remove", "path": f"{path}/{index}"}
        for item in new[len(old) :]:
            yield {"op": "add", "path": f"{path}/-", "value": item}
    elif not same(old, new):
        yield {"op": "replace", "path": path, "value": new}
