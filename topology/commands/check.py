"""`topology check`."""

from __future__ import annotations

import sys

import click

from topology import exits
from topology.commands.configured import configured, fail
from topology.declare import missing
from topology.errors import TopologyError


@click.command("check")
def check_command() -> None:
    """Look for missing exchanges and queues, by name; `apply` tells of other arguments.

    One `thing: OK` a line; exit 3 when something is missing on the broker.
    """
    settings, _, entities = configured()
    click.echo(f"topology {settings.topology}: OK ({len(entities.queues)} queues)")
    try:
        absent = missing(settings.address, entities)
    except TopologyError as error:
        fail("check", error, exits.FAILED)
    click.echo(f"broker {settings.address}: OK")
    for name in absent:
        click.echo(f"{name}: MISSING", err=True)
    if absent:
        click.echo("Run: topology apply", err=True)
        sys.exit(exits.CHANGES)
    click.echo("entities: OK")
