"""Output for people: plain columns, and nothing in it that a terminal would obey."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

LONGEST_CELL = 60


def plain(value: object) -> str:
    """One line of text without control characters: a letter may hold escape sequences."""
    text = "-" if value is None else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their longest cell."""
    cells = [[_cut(plain(value)) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(heads), *cells]) for i in range(len(heads))]
    for row in [list(heads), *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def fields(pairs: Sequence[tuple[str, object]]) -> None:
    """One `name  value` a line."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{name.ljust(width)}  {plain(value)}")


def block(title: str, text: str) -> None:
    """A titled text of several lines."""
    click.echo(f"\n{title}")
    for line in text.splitlines():
        click.echo(f"  {plain(line)}")


def json_line(value: Any) -> None:
    """One JSON object on one line."""
    click.echo(json.dumps(value, ensure_ascii=True, allow_nan=False))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"
