"""How often we knock at what is away, and how often we say so."""

from __future__ import annotations

import random
from collections.abc import Callable

Say = Callable[[str], None]


class Backoff:
    """Delays between attempts in seconds: from 0.1 doubling to 5, each cut at random by up to a half."""

    def __init__(self, first_s: float = 0.1, most_s: float = 5.0) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._next_s = first_s

    def next_s(self) -> float:
        delay_s, self._next_s = self._next_s, min(self._most_s, self._next_s * 2)
        return delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads reconnects, keeps no secret

    def reset(self) -> None:
        self._next_s = self._first_s


class Waiting:
    """Says that we wait: at once, for a new reason, and after 1, 2, 4, … minutes, then every hour."""

    def __init__(self, what: str, say: Say, clock: Callable[[], float]) -> None:
        self._what, self._say, self._clock = what, say, clock
        self._start = clock()
        self._reminder_s = 60.0
        self._said: set[str] = set()

    def failed(self, reason: str) -> None:
        waited_s = self._clock() - self._start
        due = waited_s >= self._reminder_s
        if due or (reason not in self._said and len(self._said) < 5):
            self._say(f"waiting for {self._what}: {reason}" + (f" ({waited_s:.0f} s so far)" if due else ""))
            self._said.add(reason)
        while waited_s >= self._reminder_s:
            self._reminder_s += min(self._reminder_s, 3600.0)

    def over(self) -> None:
        if self._said:
            self._say(f"connected to {self._what} after {self._clock() - self._start:.1f} s")
