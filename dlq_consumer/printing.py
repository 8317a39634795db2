"""Output for people: tables on a terminal, plain columns elsewhere, nothing that a terminal would obey."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

LONGEST_CELL = 60
# Spaces between columns.
GAP = 2
# Of words that stand alone in a cell.
_COLOURS = {
    "open": "red", "quarantined": "magenta", "replaying": "yellow", "replayed": "green", "discarded": "dim",
    "resolved": "green", "ignored": "dim", "running": "yellow", "paused": "magenta", "done": "green",
    "succeeded": "green", "died_again": "red", "failed": "red", "unknown": "magenta", "-": "dim",
}  # fmt: skip


def plain(value: object) -> str:
    """One line of text without control characters: a letter may hold escape sequences."""
    text = "-" if value is None else str(value)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """On a terminal as wide as that is, long cells cut; else columns as wide as their longest cell."""
    if sys.stdout.isatty():
        _on_terminal(heads, rows)
        return
    cells = [[_cut(plain(value)) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(heads), *cells]) for i in range(len(heads))]
    for row in [list(heads), *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _on_terminal(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    cells = [[plain(value) for value in row] for row in rows]
    # No markup, no links: what a letter holds is text. NO_COLOR is heeded.
    console = Console(markup=False, emoji=False, highlight=False)
    widths = _fitted(
        [max(cell_len(row[i]) for row in [list(heads), *cells]) for i in range(len(heads))],
        [len(head) for head in heads],
        console.width,
    )
    shown = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for head, width in zip(heads, widths, strict=True):
        shown.add_column(head, no_wrap=True, overflow="ellipsis", width=width)
    for row in cells:
        shown.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    # Narrower than the heads: the terminal breaks the lines, no column is left out.
    console.print(shown, width=max(console.width, sum(widths) + GAP * len(widths)), crop=False)


def _fitted(widths: list[int], least: list[int], room: int) -> list[int]:
    """Widths that fit into `room`, the widest cut first. The first column is what the next command is given:
    never cut.
    """
    widths = [*widths]
    while sum(widths) + GAP * len(widths) > room:
        cuttable = [i for i in range(1, len(widths)) if widths[i] > least[i]]
        if not cuttable:
            break
        widths[max(cuttable, key=lambda i: widths[i])] -= 1
    return widths


def fields(pairs: Sequence[tuple[str, object]]) -> None:
    """One `name  value` a line."""
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        click.echo(f"{click.style(name.ljust(width), bold=True)}  {plain(value)}")


def block(title: str, text: str) -> None:
    """A titled text of several lines."""
    click.echo(f"\n{click.style(plain(title), bold=True)}")
    for line in text.splitlines():
        click.echo(f"  {plain(line)}")


def json_line(value: Any) -> None:
    """One JSON object on one line."""
    click.echo(json.dumps(value, ensure_ascii=True, allow_nan=False))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"
