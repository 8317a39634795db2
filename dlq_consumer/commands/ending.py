"""How every `dlq` command ends: 130 after Ctrl-C, wherever it comes, 1 on a full disk; its help says so."""

from __future__ import annotations

import errno
import sys
from typing import Any

import click

from topology import exits
from topology.on_demand import OnDemand

EPILOG = "Exit codes of every command: 0 done, 1 failed, 2 wrong usage or setting, 130 interrupted."


class Commands(OnDemand):
    """click by itself ends with 1 after Ctrl-C, as it does when a question is answered with no."""

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """With `EPILOG` below its help and that of its subcommands."""
        _say_how_it_ends(cmd)
        super().add_command(cmd, name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.exit(exits.INTERRUPTED)
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader has enough: click ends with 1, without a word
                raise
            click.echo(f"dlq: {error}", err=True)  # such as a full disk behind standard output
            sys.exit(exits.FAILED)
        except click.Abort as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # it came at a question
                sys.exit(exits.INTERRUPTED)
            raise


def _say_how_it_ends(command: click.Command) -> None:
    command.epilog = EPILOG
    if isinstance(command, click.Group):
        for sub in command.commands.values():
            _say_how_it_ends(sub)
