"""Counters and histograms of one process, filled by any of its threads."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Sequence
from threading import Lock

from topology.prometheus.text import Family, Sample

# A name that messages could choose must not make series without end: the rest is counted under this one.
OTHER = "other"
MOST_SERIES = 500


class Counter:
    """A number for each combination of labels, which only grows."""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._lock = Lock()
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0.0}

    def add(self, *labels: str, number: float = 1) -> None:
        with self._lock:
            labels = _bounded(self._values, labels)
            self._values[labels] = self._values.get(labels, 0) + number

    def start(self, *labels: str) -> None:
        """Show 0 before the first: a rate needs a value to grow from."""
        self.add(*labels, number=0)

    def family(self) -> Family:
        with self._lock:
            values = sorted(self._values.items())
        samples: list[Sample] = [
            ("", dict(zip(self._labels, labels, strict=True)), value) for labels, value in values
        ]
        return Family(self._name, "counter", self._text, tuple(samples))


class Histogram:
    """How often a value was at most each of `bounds`, for each combination of labels."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._bounds = (*bounds, math.inf)
        self._lock = Lock()
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *labels: str) -> None:
        place = bisect_left(self._bounds, value)
        with self._lock:
            labels = _bounded(self._counts, labels)
            counts = self._counts.get(labels)
            if counts is None:
                counts = self._counts[labels] = [0] * len(self._bounds)
            counts[place] += 1
            self._sums[labels] = self._sums.get(labels, 0.0) + value

    def family(self) -> Family:
        with self._lock:
            found = [(labels, list(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        samples: list[Sample] = []
        for labels, counts, total in sorted(found):
            named = dict(zip(self._labels, labels, strict=True))
            below = 0
            for bound, count in zip(self._bounds, counts, strict=True):
                below += count
                samples.append(("_bucket", named | {"le": _bound(bound)}, below))
            samples += [("_sum", named, total), ("_count", named, below)]
        return Family(self._name, "histogram", self._text, tuple(samples))


def _bounded(known: Collection[tuple[str, ...]], labels: tuple[str, ...]) -> tuple[str, ...]:
    if labels in known or len(known) < MOST_SERIES:
        return labels
    return (OTHER,) * len(labels)


def _bound(value: float) -> str:
    return "+Inf" if math.isinf(value) else f"{value:g}"
