"""Decoded AMQP field values as JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal

from topology.wire_values import OddText, OddTimestamp, Pairs, Unparsed


def readable(value: object) -> object:
    """A decoded value as JSON can say it, types kept.

    `{"$ts": "2026-01-31T12:00:00+00:00"}` (seconds as a number when out of range), `{"$float": "NaN"}`,
    `{"$decimal": "1.50"}`, `{"$bytes": base64}` (with `"type": "S"` for text that is not UTF-8, `"type": "?"`
    for a value that could not be parsed), `{"$pairs": [[key, value], …]}` for tables whose keys are bytes,
    repeated, or begin with `$`.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": _float_name(value)}
        case bytes():
            return {"$bytes": _base64(value)}
        case OddText():
            return {"$bytes": _base64(value.raw), "type": "S"}
        case Unparsed():
            return {"$bytes": _base64(value.raw), "type": "?"}
        case datetime():
            return {"$ts": value.isoformat()}
        case OddTimestamp():
            return {"$ts": value.seconds}
        case Decimal():
            return {"$decimal": str(value)}
        case Mapping() if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: readable(item) for key, item in value.items()}
        case Mapping():
            return {"$pairs": [[readable(key), readable(item)] for key, item in value.items()]}
        case Pairs():
            return {"$pairs": [[readable(key), readable(item)] for key, item in value.items]}
        case list() | tuple():
            return [readable(item) for item in value]
    raise TypeError(f"not a decoded header value: {value!r:.80}")


def _float_name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
