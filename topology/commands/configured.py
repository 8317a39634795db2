"""What several subcommands share: the settings' topology, and how a command fails."""

from __future__ import annotations

import sys
from typing import NamedTuple, NoReturn

import click

from topology import exits
from topology.entities import Entities, compile_topology
from topology.errors import InvalidTopologyError, WrongSettingsError
from topology.settings import TopologySettings, load_topology, read_settings
from topology.spec import Topology


class Configured(NamedTuple):
    """The settings, the topology that they name, and what that is on a broker."""

    settings: TopologySettings
    topology: Topology
    entities: Entities


def configured() -> Configured:
    """Read from the environment; ends the process with exit code 2 where something is wrong."""
    try:
        settings = read_settings(TopologySettings)
        topology = load_topology(settings)
        return Configured(settings, topology, compile_topology(topology, settings.time_scale))
    except (WrongSettingsError, InvalidTopologyError) as error:
        click.echo(str(error), err=True)
    sys.exit(exits.USAGE)


def fail(command: str, error: Exception | str, code: int) -> NoReturn:
    """End the process with `code` after a line that names the subcommand."""
    click.echo(f"topology {command}: {error}", err=True)
    sys.exit(code)
