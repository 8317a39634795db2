"""JSON that was stored as bytes, for showing."""

from __future__ import annotations

import json
import math
from typing import Any


def stored(text: bytes | None) -> Any:
    """Stored JSON for showing. Python wrote it, so it may hold NaN: shown as `{"$float": "NaN"}`."""
    if text is None:
        return None
    return json.loads(text, parse_constant=lambda name: {"$float": name}, parse_float=_shown_float)


def _shown_float(text: str) -> Any:
    value = float(text)
    return {"$float": "Infinity" if value > 0 else "-Infinity"} if math.isinf(value) else value
