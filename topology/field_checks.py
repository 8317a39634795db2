"""Checks of a spec's fields. Each error names the owner, the field, the value seen and what it must be."""

from __future__ import annotations

import re
from typing import Any

from topology.errors import InvalidTopologyError

# AMQP 0-9-1 short strings: names and routing keys are limited to 255 bytes.
NAME_BYTES = 255
# The longest suffixes that topology/names.py adds: ".retry.2097152ms" and the like.
SUFFIX_BYTES = 24
# Before the name, the ladder's routing and binding keys have its shape, at most "20x60000.", and a bit or a
# star and a dot for each step.
SHAPE_BYTES = 9
KEY_BYTES_PER_STEP = 2
# Room for a name in what a message may say; a longer one is cut.
_SHOWN = 60
_NAME = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_\-.:]*")


def wrong(owner: str, field: str, value: object, must: str) -> InvalidTopologyError:
    """`queue 'payments': prefetch is 0; it must be …`. The owner is left out where it is empty."""
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    return InvalidTopologyError(f"{owner}{': ' if owner else ''}{field} is {shown}; it must be {must}")


def check_whole(owner: str, field: str, value: Any, low: int, high: int) -> None:
    """A whole number from `low` to `high`; True is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise wrong(owner, field, value, f"a whole number, {low:,} to {high:,}")


def check_number(owner: str, field: str, value: Any, low: float, high: float) -> None:
    """A number from `low` to `high`, whole or not; NaN is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise wrong(owner, field, value, f"a number, {low:,} to {high:,}")


def check_type(owner: str, field: str, value: Any, kind: type, what: str) -> None:
    """`what` says in words what `kind` is."""
    if not isinstance(value, kind):
        raise wrong(owner, field, value, what)


def check_name(owner: str, field: str, name: Any, steps: int) -> None:
    """A name from which every other can be derived: suffixes, and keys of a ladder of `steps`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name or name.endswith("."):
        raise wrong(owner, field, name, "letters, digits and - _ . : (no empty word between dots)")
    longest = NAME_BYTES - max(SUFFIX_BYTES, SHAPE_BYTES + KEY_BYTES_PER_STEP * steps)
    if len(name.encode()) > longest:
        raise wrong(owner, field, name, f"at most {longest} bytes with {steps} ladder steps")
    if name.startswith(("amq.", "redrive.")):
        raise wrong(owner, field, name, "outside of amq. and redrive., which are reserved")
