"""What people write with a decision: it is kept whole or refused, as over HTTP, and never cut."""

from __future__ import annotations

import click

from storage.letter_actions import MAX_NAME


class Words(click.ParamType[str]):
    """A text of at most `most` characters. Longer ones are a wrong usage."""

    name = "text"

    def __init__(self, most: int) -> None:
        self.most = most

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if len(value) > self.most:
            self.fail(f"it has {len(value):,} characters; {self.most:,} are kept at most", param, ctx)
        return value


NAME = Words(MAX_NAME)
