"""Metric families in Prometheus' text format.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["gauge", "counter", "histogram"]
Sample = tuple[str, Mapping[str, str], float]  # suffix of the name, labels, value


@dataclass(frozen=True)
class Family:
    """All samples of one name."""

    name: str
    kind: Kind
    text: str
    samples: tuple[Sample, ...]


class Reading(Protocol):
    """A state at one moment, as `storage.figures` reads it."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def samples(self) -> tuple[tuple[Mapping[str, str], float], ...]: ...


def gauge(name: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> Family:
    return Family(name, "gauge", text, tuple(("", labels, value) for labels, value in samples))


def as_gauges(readings: Iterable[Reading]) -> list[Family]:
    return [gauge(reading.name, reading.text, reading.samples) for reading in readings]


def render(families: Iterable[Family]) -> str:
    """The page. Families of one name become one: Prometheus takes no name twice."""
    together: dict[str, Family] = {}
    for family in families:
        known = together.get(family.name)
        samples = family.samples if known is None else known.samples + family.samples
        together[family.name] = Family(family.name, family.kind, family.text, samples)
    return "\n".join([*(line for family in together.values() for line in _lines(family)), ""])


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.text}"
    yield f"# TYPE {family.name} {family.kind}"
    for suffix, labels, value in family.samples:
        inside = ",".join(f'{label}="{_escape(found)}"' for label, found in labels.items())
        name = f"{family.name}{suffix}"
        yield f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _escape(value: str) -> str:
    # A lone surrogate cannot be sent.
    text = value.encode("utf-8", "backslashreplace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
