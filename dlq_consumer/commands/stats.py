"""`dlq stats`"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from dlq_consumer import printing
from dlq_consumer.commands.running import Load, with_database
from storage import letter_stats
from storage.letter_filter import STATES
from storage.letter_stats import MAX_HOURS
from storage.pool import Pool

BAR = 40


@click.command()
@click.option(
    "--hours", type=click.IntRange(1, MAX_HOURS), default=24, show_default=True, help="Count so far back."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def stats(load: Load, hours: int, as_json: bool) -> None:
    """How many letters: by queue, reason, state and hour; the largest groups; how long the oldest waits.

    Counted as letters come and change, so it is as quick with a million. Copies of a letter are not counted.

    Example: dlq stats --hours 48
    """

    async def read(pool: Pool) -> dict[str, Any]:
        return await letter_stats.stats(pool, hours=hours)

    found = with_database(load, read)
    if as_json:
        printing.json_line(found)
    else:
        _print(found)


def _print(found: Mapping[str, Any]) -> None:
    oldest, newest = found["oldest_undecided"], found["newest"]
    pairs: list[tuple[str, object]] = [("letters", found["letters"])]
    if oldest is not None:
        waits = "at no known time" if oldest["age_s"] is None else f"{_age(oldest['age_s'])} ago"
        pairs.append(("oldest undecided", f"{oldest['id']}, died {waits}"))
    if newest is not None:
        pairs.append(("newest", f"{newest['id']}, stored {newest['stored_at'][:19].replace('T', ' ')} UTC"))
    printing.fields(pairs)
    for name, counts in (("QUEUE", found["queues"]), ("REASON", found["reasons"])):
        click.echo()
        heads = (name, *(state.upper() for state in STATES))
        printing.table(heads, [(key, *(by.get(state, 0) for state in STATES)) for key, by in counts.items()])
    click.echo()
    printing.table(
        ("GROUP", "UNDECIDED", "QUEUE", "TASK", "REASON", "EXCEPTION", "LAST SEEN"),
        [
            (g["group"], g["undecided"], g["queue"], g["task"], g["reason"], g["exception_type"],
             g["last_seen"][:19].replace("T", " "))
            for g in found["groups"]
        ],
    )  # fmt: skip
    most = max(hour["letters"] for hour in found["hours"])
    bars = [
        f"{hour['hour'][:13].replace('T', ' ')}h  {hour['letters']:7}  {_bar(hour['letters'], most)}"
        for hour in found["hours"]
        if hour["letters"]
    ]
    printing.block("stored by hour (UTC)", "\n".join(bars) or "none")


def _bar(number: int, most: int) -> str:
    return "▇" * -(-number * BAR // most)


def _age(seconds: float) -> str:
    """Such as `3 d 4 h`."""
    minutes = int(max(seconds, 0) // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
