"""`dlq tail`"""

from __future__ import annotations

import asyncio

import click

from dlq_consumer import printing
from dlq_consumer.commands.filtering import filter_options
from dlq_consumer.commands.letters import HEADS, cells
from dlq_consumer.commands.running import Load, with_database
from dlq_consumer.commands.writing import STDOUT, told
from storage import letter_feed
from storage.errors import DatabaseAwayError
from storage.letter_filter import LetterFilter
from storage.letter_pages import collect
from storage.letters import Letter
from storage.pool import Pool
from topology.letter_view import view_properties

POLL_S = 0.5
# Columns of a table whose rows are not known yet.
WIDTHS = (8, 20, 14, 10, 28, 36, 24)


@click.command()
@filter_options
@click.option(
    "-n", "--last", type=click.IntRange(0, 1_000), default=10, show_default=True, help="Letters of before."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.pass_obj
def tail(load: Load, wanted: LetterFilter, last: int, as_json: bool) -> None:
    """Show letters as they are stored, until interrupted.

    Each once, whatever the order in which they are committed. Waits while the database is away.

    \b
    Example: dlq tail --queue payments --json | jq .exception_type

    Exit codes: 1 the database cannot be reached at the start, 130 interrupted.
    """
    if not as_json:
        _line(HEADS)

    async def follow(pool: Pool) -> None:
        feed = await letter_feed.from_now(pool)
        if last:
            before = await collect(pool, wanted, limit=last)
            for letter in reversed(before.letters):
                _say(letter, as_json)
        shown = {letter.id for letter in before.letters} if last else set()
        away = False
        while True:
            try:
                for letter in await feed.next(pool, wanted):
                    if letter.id not in shown:  # committed between the two looks at the start
                        _say(letter, as_json)
            except DatabaseAwayError as error:
                if not away:
                    click.echo(f"dlq: {error}; waiting", err=True)
                away = True
            else:
                away = False
            if away or not feed.behind:
                await asyncio.sleep(POLL_S)

    with_database(load, follow)


def _say(letter: Letter, as_json: bool) -> None:
    with told(STDOUT):
        if as_json:
            view = view_properties(letter.properties)
            printing.json_line(letter.as_json(headers=view.headers, deaths=view.deaths))
        else:
            _line(cells(letter))


def _line(values: tuple[object, ...]) -> None:
    padded = [printing.plain(value).ljust(width) for value, width in zip(values, WIDTHS, strict=False)]
    click.echo("  ".join([*padded, *(printing.plain(value) for value in values[len(WIDTHS) :])]))
