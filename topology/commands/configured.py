"""What several subcommands share: the settings' topology, and how a command fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

import click

from topology import exits
from topology.entities import Entities, compile_topology
from topology.errors import InvalidTopologyError, WrongSettingsError
from topology.settings import NamedTopology, TopologySettings, load_topology, read_settings
from topology.spec import Topology


class Compiled(NamedTuple):
    """The topology that the settings name, and what that is on a broker."""

    topology: Topology
    entities: Entities


class Configured(NamedTuple):
    """The settings, the topology that they name, and what that is on a broker."""

    settings: TopologySettings
    topology: Topology
    entities: Entities


def configured() -> Configured:
    """Read from the environment; ends the process with exit code 2 where something is wrong."""
    with _usage():
        settings = read_settings(TopologySettings)
        return Configured(settings, *_compiled(settings))


def compiled() -> Compiled:
    """The same for what needs no broker."""
    with _usage():
        return _compiled(read_settings(NamedTopology))


def _compiled(settings: NamedTopology) -> Compiled:
    topology = load_topology(settings)
    return Compiled(topology, compile_topology(topology, settings.time_scale))


@contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except (WrongSettingsError, InvalidTopologyError) as error:
        click.echo(str(error), err=True)
        sys.exit(exits.USAGE)


def named_topology() -> str:
    """`module:attribute` of the settings' topology; no other setting is needed."""
    return read_settings(NamedTopology).topology


def fail(command: str, error: Exception | str, code: int) -> NoReturn:
    """End the process with `code` after a line that names the subcommand."""
    click.echo(f"topology {command}: {error}", err=True)
    sys.exit(code)
