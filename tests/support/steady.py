"""Requests at a steady rate, each sent at its time whether the one before is answered or not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

AT_ONCE = 40


@dataclass(frozen=True)
class Sent:
    """One request. `due_at`, `sent_at`, `answered_at`: of the monotonic clock."""

    number: int
    due_at: float
    sent_at: float
    answered_at: float
    status: int
    phase: str

    @property
    def latency_s(self) -> float:
        """From when it was due: what waited for its turn here counts too."""
        return self.answered_at - self.due_at


@dataclass
class Steady:
    """Calls `ask` with 0, 1, 2, … `per_s` times a second. `phase` is noted with each."""

    ask: Callable[[int], httpx.Response]
    per_s: float
    phase: str = "before"
    _sent: list[Future[Sent]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until the end of the block; then all are answered."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    @property
    def number(self) -> int:
        """How many were begun."""
        return len(self._sent)

    def is_answered(self, count: int) -> bool:
        """Whether the first so many are."""
        return all(future.done() for future in self._sent[:count])

    @property
    def sent(self) -> list[Sent]:
        """Each request, once `running` is over. Raises what any raised."""
        return [future.result() for future in self._sent]

    def _run(self) -> None:
        began = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as threads:
            due_at = began
            while not self._over.wait(max(0.0, due_at - time.monotonic())):
                self._sent.append(threads.submit(self._one, len(self._sent), due_at, self.phase))
                due_at = began + len(self._sent) / self.per_s

    def _one(self, number: int, due_at: float, phase: str) -> Sent:
        sent_at = time.monotonic()
        status = self.ask(number).status_code
        return Sent(number, due_at, sent_at, time.monotonic(), status, phase)


def percentile(values: list[float], part: float) -> float:
    """The smallest value that so great a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]
