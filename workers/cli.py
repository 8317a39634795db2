"""The `workers` command."""

from __future__ import annotations

import click

from workers.check import check_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Redrive's workers. They are started with `celery -A your.app worker`.

    Exit codes: 0 done, 1 failed, 2 wrong usage or setting.
    """


main.add_command(check_command)
