"""A group of commands that imports each when it is called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click

NONE: Mapping[str, str] = MappingProxyType({})


class OnDemand(click.Group):
    """A command's module is imported when that command is asked for: its help, its completion, its run.

    So none waits for what another imports. The help of the group itself asks for all.
    """

    def __init__(self, *args: Any, subcommands: Mapping[str, str] = NONE, **kwargs: Any) -> None:
        """Args:
        subcommands: by name the place of each, `module:attribute`.
        """
        super().__init__(*args, **kwargs)
        self._subcommands = subcommands

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._subcommands, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._subcommands and cmd_name not in self.commands:
            module, _, attribute = self._subcommands[cmd_name].partition(":")
            self.add_command(getattr(import_module(module), attribute), cmd_name)
        return super().get_command(ctx, cmd_name)
