"""Which of several media types a client wants. RFC 9110, section 12.5.1."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Longer lists are no browser's; the rest goes unread.
MOST_RANGES = 50
_QUALITY = re.compile(r"q\s*=\s*([01](?:\.[0-9]{0,3})?)", re.IGNORECASE)


def preferred(accept: str, offered: Sequence[str]) -> str | None:
    """The one of `offered`, the likelier before, that `accept` rates highest; None where it takes none.

    Of the ranges that fit a type the most specific one counts. A parameter but `q` is not heeded.
    """
    if not accept.strip():
        return offered[0]
    ranges = [_range(part) for part in accept.split(",")[:MOST_RANGES]]
    best, chosen = 0.0, None
    for kind in offered:
        fitting = [(text.count("*"), -quality) for text, quality in ranges if _fits(text, kind)]
        quality = -min(fitting)[1] if fitting else 0.0
        if quality > best:
            best, chosen = quality, kind
    return chosen


def _range(part: str) -> tuple[str, float]:
    text, *parameters = (piece.strip() for piece in part.split(";"))
    found = [match for piece in parameters if (match := _QUALITY.fullmatch(piece))]
    return text.lower(), min(float(found[-1][1]), 1.0) if found else 1.0


def _fits(text: str, kind: str) -> bool:
    return text in (kind, f"{kind.partition('/')[0]}/*", "*/*")
