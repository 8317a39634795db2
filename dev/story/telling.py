"""How the story is told: numbered steps, a line for each thing seen, and loud when something was not."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import click

from dev.errors import DevError


class NotSeen(DevError):
    """The story expected something and saw something else; the message holds both."""


@dataclass
class Teller:
    """Prints. Times are seconds since the story began."""

    began: float = field(default_factory=time.monotonic)
    steps: int = 0

    def step(self, title: str) -> None:
        self.steps += 1
        click.echo(f"\n{self.steps}. {title}")

    def seen(self, what: str) -> None:
        """An observation: never call it with what is merely hoped."""
        click.echo(f"   {self._elapsed()}  {what}")

    def quoted(self, text: str) -> None:
        """Somebody else's words: a traceback, a command's output."""
        for line in text.rstrip().splitlines():
            click.echo(f"          | {line}")

    def progress(self, line: str) -> None:
        click.echo(f"   {self._elapsed()}  {line}")

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self.began:6.2f}"


def expect(condition: bool, expected: str, seen: object) -> None:
    """Raises NotSeen unless `condition`."""
    if not condition:
        raise NotSeen(f"expected {expected}; seen instead: {seen}")
