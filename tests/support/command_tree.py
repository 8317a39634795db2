"""The commands of a click group, those too that are imported when they are called."""

from __future__ import annotations

from collections.abc import Iterator

import click


def commands_of(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Each with its name, as the help lists them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield name, command
