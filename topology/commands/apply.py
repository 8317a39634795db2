"""`topology apply`."""

from __future__ import annotations

import time

import click

from topology import exits
from topology.commands.configured import configured, fail
from topology.declare import apply
from topology.errors import BrokerUnreachableError, ConflictError, TopologyError

RETRY_S = 2.0


@click.command("apply")
@click.option(
    "--wait", "wait_s", type=float, default=60.0, show_default=True, help="Seconds to wait for the broker."
)
def apply_command(wait_s: float) -> None:
    """Declare what is missing. Deletes nothing and changes nothing that exists."""
    settings, _, entities = configured()
    deadline = time.monotonic() + wait_s
    while True:
        try:
            apply(settings.address, entities)
        except BrokerUnreachableError as error:
            if time.monotonic() >= deadline:
                fail("apply", error, exits.FAILED)
            click.echo(f"waiting for the broker: {error}", err=True)
            time.sleep(min(RETRY_S, max(deadline - time.monotonic(), 0)))
        except ConflictError as error:
            fail("apply", error, exits.CONFLICT)
        except TopologyError as error:
            fail("apply", error, exits.FAILED)
        else:
            break
    counts = f"{len(entities.exchanges)} exchanges, {len(entities.queues)} queues"
    click.echo(f"topology: {counts}, {len(entities.bindings)} bindings at {settings.address}")
