"""The options that choose letters: the same ones at every command that takes a filter."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from dlq_consumer.commands.running import Load, with_database
from storage.group_list import find
from storage.letter_filter import REASONS, STATES, LetterFilter
from storage.times import TIME_FORMS, read_time

FINGERPRINT = re.compile(r"[0-9a-f]{32}")
# As Postgres numbers them.
LETTER_ID = click.IntRange(1, 2**63 - 1)
Command = TypeVar("Command", bound=Callable[..., Any])


def past(context: click.Context, parameter: click.Parameter, value: str | None) -> datetime | None:
    try:
        return None if value is None else read_time(value, datetime.now(UTC))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def said(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A variable that a script left empty chooses nothing by itself, and every letter with --text."""
    if value == "":
        raise click.BadParameter("it is empty")
    return value


REASON = click.option(
    "--reason", type=click.Choice(REASONS), metavar="REASON", help="Why, such as exception or delivery_limit."
)
_OPTIONS = (
    click.option("--queue", callback=said, help="Work queue or dead-letter queue."),
    REASON,
    click.option("--task", callback=said, help="Name of the task."),
    click.option("--exception", callback=said, help="Type of the exception, as `dlq list` shows it."),
    click.option("--group", callback=said, help="Fingerprint of the group, or how it begins."),
    click.option("--state", type=click.Choice(STATES), help="What has become of it."),
    click.option("--undecided", is_flag=True, help="Nobody has decided on it, or its outcome is not known."),
    click.option("--since", callback=past, metavar="TIME", help=f"Died then or later: {TIME_FORMS}."),
    click.option("--until", callback=past, metavar="TIME", help="Died before."),
    click.option("--job", "job_id", callback=said, help="Id of the job."),
    click.option("--text", callback=said, help="Stands in the body."),
)


def _whole(load: Load, group: str | None) -> str | None:
    """Its whole fingerprint; exits 1 where no group begins so, or several do.

    A whole one is taken as it is: `dlq tail` may wait for the first letter of its group.
    """
    if group is None or FINGERPRINT.fullmatch(group):
        return group
    return with_database(load, lambda pool: find(pool, group))


def filter_options(command: Command) -> Command:
    """Give a command the options; it gets them as one `wanted: LetterFilter`."""

    @functools.wraps(command)
    def call(*args: Any, **kwargs: Any) -> Any:
        names = ("queue", "reason", "task", "exception", "group", "state", "undecided", "since", "until")
        given = {name: kwargs.pop(name) for name in (*names, "job_id", "text")}
        given["group"] = _whole(click.get_current_context().obj, given["group"])
        return command(*args, wanted=LetterFilter(**given), **kwargs)

    found: Any = call
    for option in reversed(_OPTIONS):
        found = option(found)
    return found  # type: ignore[no-any-return]
