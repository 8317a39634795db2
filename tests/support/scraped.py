"""A page for Prometheus, taken apart by the rules of its format; what breaks them fails."""

from __future__ import annotations

import re
from dataclasses import dataclass

import httpx

LINE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"(?:,|$)')


@dataclass(frozen=True)
class Page:
    text: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float:
        """Raises AssertionError where there is no such sample."""
        key = name, frozenset(labels.items())
        assert key in self.samples, (name, labels, sorted(self.names))
        return self.samples[key]

    def found(self, name: str, **labels: str) -> list[float]:
        """Every sample that has these labels, and maybe more."""
        wanted = set(labels.items())
        return [value for (each, has), value in self.samples.items() if each == name and wanted <= has]

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


def scrape(url: str) -> Page:
    """Raises httpx.HTTPError, and AssertionError for a page that Prometheus would not take."""
    answer = httpx.get(url, timeout=20).raise_for_status()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parse(answer.text)


def parse(text: str) -> Page:
    samples = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        assert found, line
        labels = LABEL.findall(found["labels"] or "")
        assert ",".join(f'{name}="{value}"' for name, value in labels) == (found["labels"] or ""), line
        key = found["name"], frozenset(labels)
        assert key not in samples, f"told twice: {line}"
        samples[key] = float(found["value"])
    return Page(text, samples)
