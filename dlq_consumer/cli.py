"""The `dlq` command: builds the settings, the rest is in `dlq_consumer.commands`."""

from __future__ import annotations

import sys
from typing import TypeVar

import click
from pydantic_settings import BaseSettings

from dlq_consumer.commands.ending import Commands
from topology import exits
from topology.errors import WrongSettingsError
from topology.settings import read_settings

S = TypeVar("S", bound=BaseSettings)
SUBCOMMANDS = {
    "alerts": "dlq_consumer.commands.alerts:alerts",
    "audit": "dlq_consumer.commands.audit:audit",
    "callbacks": "dlq_consumer.commands.callbacks:callbacks",
    "cancel": "dlq_consumer.commands.replay_control:cancel",
    "check": "dlq_consumer.commands.check:check",
    "completion": "dlq_consumer.commands.completion:completion",
    "consume": "dlq_consumer.commands.consume:consume",
    "discard": "dlq_consumer.commands.discarding:discard",
    "edit": "dlq_consumer.commands.editing:edit_letter",
    "export": "dlq_consumer.commands.exporting:export_letters",
    "group": "dlq_consumer.commands.groups:group",
    "groups": "dlq_consumer.commands.groups:groups",
    "import": "dlq_consumer.commands.importing:import_letters",
    "list": "dlq_consumer.commands.letters:list_letters",
    "pause": "dlq_consumer.commands.replay_control:pause",
    "replay": "dlq_consumer.commands.replay:replay",
    "replays": "dlq_consumer.commands.replay:list_replays",
    "restore": "dlq_consumer.commands.discarding:restore",
    "resume": "dlq_consumer.commands.replay_control:resume",
    "show": "dlq_consumer.commands.letters:show",
    "stats": "dlq_consumer.commands.stats:stats",
    "tail": "dlq_consumer.commands.tail:tail",
}


def load(kind: type[S]) -> S:
    """Settings of one kind, or exit 2 naming the variables that are wrong."""
    try:
        return read_settings(kind)
    except WrongSettingsError as error:
        click.echo(str(error), err=True)
        sys.exit(exits.USAGE)


@click.group(cls=Commands, subcommands=SUBCOMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def main(context: click.Context) -> None:
    """Dead letters: drain them, look at them, decide on them, send them out again.

    Exit codes: 0 done, 1 failed, 2 wrong usage or setting, 4 conflict, 130 interrupted.
    """
    context.obj = load


if __name__ == "__main__":
    main()
