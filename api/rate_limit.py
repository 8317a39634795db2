"""Token buckets: how often somebody may ask, of this process. Pure but for the clock that is handed in."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

# Of one process. The longest unused is forgotten first; it had filled up again long before.
MOST_BUCKETS = 10_000
# What headers tell of a rate next to nothing: a number has 15 digits at most there (RFC 8941, 3.3.1).
LONGEST_S = 10.0**9


@dataclass
class _Bucket:
    tokens: float
    at: float


@dataclass(frozen=True)
class Taken:
    """What came of it. `wait_s`: until the next request is let in, 0 where this one was."""

    allowed: bool
    rate: float
    burst: int
    left: float
    wait_s: float

    @property
    def headers(self) -> dict[str, str]:
        """As draft-ietf-httpapi-ratelimit-headers-10 spells them, and Retry-After (RFC 9110)."""
        window = max(1, _seconds(self.burst / self.rate))
        full = _seconds((self.burst - self.left) / self.rate)
        found = {
            "RateLimit-Policy": f'"requests";q={self.burst};w={window}',
            "RateLimit": f'"requests";r={max(0, math.floor(self.left))};t={full}',
        }
        return found if self.allowed else found | {"Retry-After": str(max(1, _seconds(self.wait_s)))}


def _seconds(wait: float) -> int:
    return math.ceil(min(wait, LONGEST_S))


class RateLimit:
    """One bucket for each name, in bounded memory."""

    def __init__(self, most: int = MOST_BUCKETS) -> None:
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, name: str, rate: float, burst: int, now: float, cost: float = 1.0) -> Taken:
        """Take `cost` tokens, of which `rate` come back each second, up to `burst`.

        What costs more than `burst` is let in by a full bucket, and leaves a debt.
        """
        bucket = self._buckets.pop(name, None) or _Bucket(burst, now)
        bucket.tokens = min(burst, bucket.tokens + (now - bucket.at) * rate)
        bucket.at = now
        wanted = min(cost, burst)
        if allowed := bucket.tokens >= wanted:
            bucket.tokens -= cost
        self._buckets[name] = bucket
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        missing = wanted - bucket.tokens
        return Taken(allowed, rate, burst, bucket.tokens, 0.0 if allowed else missing / rate)

    def give_back(self, name: str, cost: float = 1.0) -> None:
        """Undo a `take`."""
        if (bucket := self._buckets.get(name)) is not None:
            bucket.tokens += cost
