"""Text that Postgres takes: it refuses NUL and lone surrogates in `text`, and a traceback can hold both."""

from __future__ import annotations

import math
import re
from typing import Any

_REFUSED = re.compile(r"[\x00\ud800-\udfff]")
# Backslashes before a refused character, or before what would read as the spelling of one.
_AMBIGUOUS = re.compile(r"(?<!\\)(\\*+)(?:([\x00\ud800-\udfff])|(?=u(?:0000|d[89a-f][0-9a-f]{2})))")


def safe_text(text: str, limit: int = 4_000) -> str:
    r"""`text` with NULs and lone surrogates spelled as escapes (`\u0000`), of at most `limit` characters.

    A capped text keeps its head and its tail, since a traceback says at its end what happened.
    Backslashes before an escape, spelled here or found in the text, are doubled, so that the spelling can be
    undone: after an odd number of backslashes it is a character, after an even number it is text.
    """
    if not (text.isascii() and text.isprintable() and "\\" not in text):  # which most texts are
        text = _AMBIGUOUS.sub(_spelled, text)
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit} characters left out …\n"
    keep = max(limit - len(mark), 0)
    head = keep // 3
    return text[:head] + mark + text[len(text) - (keep - head) :] if keep else text[:limit]


def safe_json(value: Any) -> Any:
    """A JSON value that `jsonb` takes: texts as `safe_text` spells them, what is no number as `$float`."""
    if isinstance(value, str):
        return safe_text(value, len(value) * 6)
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, dict):
        return {safe_json(key): safe_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [safe_json(each) for each in value]
    return value


def fits(text: str, limit: int) -> bool:
    """Whether Postgres takes `text` as it is and it has at most `limit` characters."""
    return len(text) <= limit and _REFUSED.search(text) is None


def _spelled(match: re.Match[str]) -> str:
    return match[1] * 2 + (f"\\u{ord(match[2]):04x}" if match[2] else "")
