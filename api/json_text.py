"""JSON in: strict, each fault with the path of its field. JSON out: whatever a payload or result holds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse

from api.ready_json import written

MAX_DEPTH = 64
# A value takes up to 150 bytes in memory, and as little as 2 in the text.
MAX_VALUES = 250_000
# Longer ones are no numbers that anyone meant, and Python takes quadratic time to read them.
MAX_DIGITS = 400
# Of a name, and of a path of names, in an error: characters.
MAX_NAME, MAX_PATH = 100, 300


class JsonFault(Exception):
    """A text that is no JSON, or JSON that is not taken. `path` is '' for the whole text."""

    def __init__(self, path: str, message: str, *, syntax: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.message = message
        self.syntax = syntax


class _Bad:
    """Stands in the parsed value where something not allowed stood, until its path is known."""

    def __init__(self, message: str) -> None:
        self.message = message


def _constant(text: str) -> _Bad:
    return _Bad(f"{text} is no JSON number (RFC 8259)")


def _number(text: str) -> Any:
    value = float(text)
    return _Bad(f"{text[:40]} is out of the range of a double") if math.isinf(value) else value


def _integer(text: str) -> Any:
    return int(text) if len(text) <= MAX_DIGITS else _Bad(f"an integer of more than {MAX_DIGITS} digits")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                made[key] = _Bad("this key occurs twice in its object")
            seen.add(key)
    return made


_DECODER = json.JSONDecoder(
    parse_constant=_constant, parse_float=_number, parse_int=_integer, object_pairs_hook=_pairs
)
# A string, closed or not, so that the text is gone through once; or what begins or ends a value.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[,\[{]', re.DOTALL)


def parse(text: bytes, most: int = MAX_VALUES) -> Any:
    """The value of a JSON text (RFC 8259, UTF-8).

    Raises:
        JsonFault: not JSON, NaN or an infinity, a number that is too large, a key twice in one
            object, more than 64 levels of nesting, or more than `most` values: they are counted before
            any is made.
    """
    if _has_more(text, most):
        raise JsonFault("", f"has more than {most:,} values")
    try:
        value = _DECODER.decode(text.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise JsonFault("", f"not UTF-8 at byte {error.start}", syntax=True) from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise JsonFault("", f"not JSON: {error.msg} at {where}", syntax=True) from None
    except RecursionError:
        raise JsonFault("", f"nested deeper than {MAX_DEPTH} levels") from None
    for place, depth, found in _walk(value):
        if depth > MAX_DEPTH:
            raise JsonFault(_path(place), f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(found, _Bad):
            raise JsonFault(_path(place), found.message)
    return value


def _has_more(text: bytes, most: int) -> bool:
    if text.count(b",") + text.count(b"[") + text.count(b"{") <= most:
        return False
    count = 0
    for token in _TOKEN.finditer(text):
        count += text[token.start()] != 0x22
        if count > most:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: a key or an index below another place. Keys can be as long as the text."""

    above: _Place | None
    name: str | int


def _path(place: _Place | None) -> str:
    """Such as `payload.items.3`, made for a fault that was found, and of a bounded length."""
    names: list[str] = []
    while place is not None:
        names.append(shortened(str(place.name), MAX_NAME))
        place = place.above
    return shortened(".".join(reversed(names)), MAX_PATH)


def shortened(text: str, limit: int) -> str:
    """`text`, of at most `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _walk(value: Any) -> Iterator[tuple[_Place | None, int, Any]]:
    """Every container and every `_Bad` with its place, in their order; in memory is one way down."""
    yield None, 1, value
    way: list[tuple[_Place | None, Iterator[tuple[str | int, Any]]]] = [(None, _items(value))]
    while way:
        above, items = way[-1]
        for name, item in items:
            if isinstance(item, dict | list | _Bad):
                here = _Place(above, name)
                yield here, len(way) + 1, item
                way.append((here, _items(item)))
                break
        else:
            way.pop()


# As `encode` spells them; a pair of surrogates, which is one character, looks alike.
_PERHAPS_ODD = re.compile(rb"\\u(?:0000|d[89a-f])")
_ODD = re.compile(r"[\x00\ud800-\udfff]")


def odd_text(value: Any, encoded: bytes) -> str | None:
    """The path of the first name or text with a NUL or half a pair of surrogates, which no text column of
    Postgres and few programs take; None if there is none.

    Args:
        encoded: `encode` of the value, or of what it is part of, by which most are known to be free of both.
    """
    if not _PERHAPS_ODD.search(encoded):
        return None
    for place, _, found in _walk(value):
        for name, item in _items(found):
            texts = [each for each in (name, item) if isinstance(each, str)]
            if any(_ODD.search(text) for text in texts):
                return _path(_Place(place, name))
    return None


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    return iter(enumerate(value)) if isinstance(value, list) else iter(())


_CANONICAL = json.JSONEncoder(ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))


def encode(value: Any) -> bytes:
    """One canonical text: keys sorted, ASCII (a lone surrogate stays its escape)."""
    return _CANONICAL.encode(value).encode()


class JsonResponse(JSONResponse):
    """JSON in ASCII: Starlette's own answers 500 to a value with a lone surrogate."""

    def render(self, content: Any) -> bytes:
        return written(content)
