"""The `topology` command."""

from __future__ import annotations

import click

from topology.commands.apply import apply_command
from topology.commands.check import check_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Redrive's queues and exchanges on RabbitMQ.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 changes needed, 4 conflict that needs a migration.
    """


for command in (apply_command, check_command):
    main.add_command(command)
