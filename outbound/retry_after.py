"""What the other side says in `Retry-After`, as a delay."""

from __future__ import annotations

import contextlib
import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

DEFAULT_S = 5.0
LONGEST_S = 3_600.0


def retry_after_s(value: str | None, *, default_s: float = DEFAULT_S, longest_s: float = LONGEST_S) -> float:
    """Seconds from now: a number of seconds or an HTTP date (RFC 9110, 10.2.3), at most `longest_s`.

    Args:
        value: the header; None or anything else than the two is `default_s`.
    """
    seconds = default_s
    if value:
        try:
            seconds = float(value)
        except ValueError:
            with contextlib.suppress(TypeError, ValueError):
                seconds = (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
    if not math.isfinite(seconds):  # "nan" and "inf" are floats to Python, and no delays
        seconds = default_s
    return min(max(seconds, 0.0), longest_s)
