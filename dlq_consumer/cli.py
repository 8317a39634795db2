"""The `dlq` command: builds the settings, the rest is in `dlq_consumer.commands`."""

from __future__ import annotations

import sys
from typing import TypeVar

import click
from pydantic_settings import BaseSettings

from dlq_consumer.commands.alerts import alerts
from dlq_consumer.commands.audit import audit
from dlq_consumer.commands.callbacks import callbacks
from dlq_consumer.commands.check import check
from dlq_consumer.commands.completion import completion
from dlq_consumer.commands.consume import consume
from dlq_consumer.commands.discarding import discard, restore
from dlq_consumer.commands.editing import edit_letter
from dlq_consumer.commands.ending import Commands
from dlq_consumer.commands.exporting import export_letters
from dlq_consumer.commands.groups import group, groups
from dlq_consumer.commands.importing import import_letters
from dlq_consumer.commands.letters import list_letters, show
from dlq_consumer.commands.replay import list_replays, replay
from dlq_consumer.commands.replay_control import cancel, pause, resume
from dlq_consumer.commands.stats import stats
from dlq_consumer.commands.tail import tail
from topology import exits
from topology.errors import WrongSettingsError
from topology.settings import read_settings

S = TypeVar("S", bound=BaseSettings)


def load(kind: type[S]) -> S:
    """Settings of one kind, or exit 2 naming the variables that are wrong."""
    try:
        return read_settings(kind)
    except WrongSettingsError as error:
        click.echo(str(error), err=True)
        sys.exit(exits.USAGE)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def main(context: click.Context) -> None:
    """Dead letters: drain them, look at them, decide on them, send them out again.

    Exit codes: 0 done, 1 failed, 2 wrong usage or setting, 4 conflict, 130 interrupted.
    """
    context.obj = load


COMMANDS = (
    *(consume, list_letters, show, tail, stats, groups, group),
    *(replay, list_replays, pause, resume, cancel),
    *(edit_letter, discard, restore),
    *(export_letters, import_letters),
    *(alerts, callbacks, audit, check, completion),
)
for command in COMMANDS:
    main.add_command(command)


if __name__ == "__main__":
    main()
