"""JSON that is changed in one place and stays as it is in all others: a number keeps its digits."""

from __future__ import annotations

import json
from typing import Any

# As many digits as Python reads of an integer, whatever it is set to (`sys.set_int_max_str_digits`).
_DIGITS = 640


class Number(float):
    """A number with a point, an exponent or very many digits, as it was written."""

    text: str

    def __new__(cls, text: str) -> Number:
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __deepcopy__(self, memo: object) -> Number:
        return self


class _Reader:
    def __init__(self) -> None:
        self.repeated = False

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        self.repeated |= len(made) < len(pairs)
        return made


def _integer(text: str) -> int | Number:
    return int(text) if len(text) <= _DIGITS else Number(text)


def load(text: bytes) -> tuple[Any, bool]:
    """The value, and whether an object of it names a key twice; of such keys the last one is in the value.

    A byte order mark before it is passed over (RFC 8259, section 8.1).

    Raises:
        ValueError: it is no JSON in UTF-8.
    """
    reader = _Reader()
    try:
        value = json.loads(
            text.decode("utf-8-sig"), object_pairs_hook=reader.pairs,
            parse_float=Number, parse_int=_integer, parse_constant=Number,
        )  # fmt: skip
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value, reader.repeated


def dump(value: Any, *, indent: int | None = None) -> bytes:
    """In ASCII, so that a lone surrogate stays its escape.

    Args:
        indent: spaces a level, for people; None: on one line.

    Raises:
        ValueError: it is nested too deeply.
    """
    pieces: list[str] = []
    try:
        _write(value, pieces, indent, "")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return "".join(pieces).encode("ascii")


def _write(value: Any, pieces: list[str], indent: int | None, margin: str) -> None:
    if not isinstance(value, dict | list) or not value:
        pieces.append(value.text if isinstance(value, Number) else json.dumps(value))
        return
    inner = margin + " " * (indent or 0)
    first, between, last = ("", ", ", "") if indent is None else (f"\n{inner}", f",\n{inner}", f"\n{margin}")
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    pieces.append(opening + first)
    for number, item in enumerate(value):
        if number:
            pieces.append(between)
        if isinstance(value, dict):
            pieces += (json.dumps(item), ": ")
            item = value[item]
        _write(item, pieces, indent, inner)
    pieces.append(last + closing)
