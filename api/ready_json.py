"""Stored JSON that goes into an answer as it is.

Python's json lets no other thread run while it reads or writes: a result of 9 MB of small values, taken apart
and put together again, held up the event loop for 1.8 s, and from a thread for 0.4 s.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from storage.stored_json import stored

# Shorter texts are taken apart.
MAX_READ = 32_768
# In strings they are words; the possessive form goes through each string once.
_WORD = re.compile(rb'"(?:[^"\\]|\\.)*+"|NaN|Infinity', re.DOTALL)


@dataclass(frozen=True)
class Ready:
    """A JSON text in ASCII, in one line."""

    text: bytes


def shown_json(text: bytes | None) -> Any:
    """Stored JSON for an answer, as `stored` has it; of a long text the text, where it is strict JSON."""
    if text is None or len(text) <= MAX_READ or not _is_strict(text):
        return stored(text)
    return Ready(text)


def written(value: Any) -> bytes:
    """JSON in ASCII, in one line, of values among which `Ready` ones may be."""
    ready: list[bytes] = []
    place = token_hex(16)

    def leave_a_place(each: Any) -> str:
        if not isinstance(each, Ready):
            raise TypeError(f"{type(each).__name__} is no JSON")
        ready.append(each.text)
        return place

    text = json.dumps(
        value, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=leave_a_place
    ).encode()
    if not ready:
        return text
    first, *others = text.split(f'"{place}"'.encode())
    return b"".join((first, *(part for pair in zip(ready, others, strict=True) for part in pair)))


def _is_strict(text: bytes) -> bool:
    """Python wrote it: what it may have that no strict JSON has is NaN and the infinities."""
    if not text.isascii() or b"\n" in text or b"\r" in text:
        return False
    if b"NaN" not in text and b"Infinity" not in text:
        return True
    return all(found[0].startswith(b'"') for found in _WORD.finditer(text))
