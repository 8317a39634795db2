"""`topology apply` and `topology check`."""

from __future__ import annotations

import sys
import time
from typing import NoReturn

import click

from topology import exits
from topology.declare import apply, missing
from topology.entities import Entities, compile_topology
from topology.errors import (
    BrokerUnreachableError,
    ConflictError,
    InvalidTopologyError,
    TopologyError,
    WrongSettingsError,
)
from topology.settings import TopologySettings, load_topology, read_settings

RETRY_S = 2.0


def _load() -> tuple[TopologySettings, Entities]:
    try:
        settings = read_settings(TopologySettings)
        return settings, compile_topology(load_topology(settings), settings.time_scale)
    except (WrongSettingsError, InvalidTopologyError) as error:
        click.echo(str(error), err=True)
    sys.exit(exits.USAGE)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Redrive's queues and exchanges on RabbitMQ.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 changes needed, 4 conflict that needs a migration.
    """


@main.command("apply")
@click.option(
    "--wait", "wait_s", type=float, default=60.0, show_default=True, help="Seconds to wait for the broker."
)
def apply_command(wait_s: float) -> None:
    """Declare what is missing. Deletes nothing and changes nothing that exists."""
    settings, entities = _load()
    deadline = time.monotonic() + wait_s
    while True:
        try:
            apply(settings.address, entities)
        except BrokerUnreachableError as error:
            if time.monotonic() >= deadline:
                _fail("apply", error, exits.FAILED)
            click.echo(f"waiting for the broker: {error}", err=True)
            time.sleep(min(RETRY_S, max(deadline - time.monotonic(), 0)))
        except ConflictError as error:
            _fail("apply", error, exits.CONFLICT)
        except TopologyError as error:
            _fail("apply", error, exits.FAILED)
        else:
            break
    counts = f"{len(entities.exchanges)} exchanges, {len(entities.queues)} queues"
    click.echo(f"topology: {counts}, {len(entities.bindings)} bindings at {settings.address}")


@main.command("check")
def check_command() -> None:
    """Look for missing exchanges and queues, by name; `apply` tells of other arguments.

    One `thing: OK` a line; exit 3 when something is missing on the broker.
    """
    settings, entities = _load()
    click.echo(f"topology {settings.topology}: OK ({len(entities.queues)} queues)")
    try:
        absent = missing(settings.address, entities)
    except TopologyError as error:
        _fail("check", error, exits.FAILED)
    click.echo(f"broker {settings.address}: OK")
    for name in absent:
        click.echo(f"{name}: MISSING", err=True)
    if absent:
        click.echo("Run: topology apply", err=True)
        sys.exit(exits.CHANGES)
    click.echo("entities: OK")


def _fail(command: str, error: Exception, code: int) -> NoReturn:
    click.echo(f"topology {command}: {error}", err=True)
    sys.exit(code)
