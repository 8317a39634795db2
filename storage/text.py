"""Text that Postgres takes: it refuses NUL and lone surrogates in `text`, and a traceback can hold both."""

from __future__ import annotations

import re

_REFUSED = re.compile("[\x00\ud800-\udfff]")


def safe_text(text: str, limit: int = 4_000) -> str:
    r"""`text` with NULs and lone surrogates spelled as escapes (`\u0000`), of at most `limit` characters.

    A capped text keeps its head and its tail, since a traceback says at its end what happened.
    Backslashes that would read as such an escape are doubled, so that the spelling can be undone.
    """
    if _REFUSED.search(text):
        text = re.sub(r"\\(?=u[0-9a-f]{4})", r"\\\\", text)
        text = _REFUSED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    if len(text) <= limit:
        return text
    mark = f"\n… {len(text) - limit} characters left out …\n"
    keep = max(limit - len(mark), 0)
    head = keep // 3
    return text[:head] + mark + text[len(text) - (keep - head) :] if keep else text[:limit]
