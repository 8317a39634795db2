"""`topology apply`."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from topology import exits
from topology.commands.configured import configured, fail
from topology.declare import apply
from topology.entities import Entities, Policy
from topology.errors import BrokerUnreachableError, ConflictError, TopologyError
from topology.management import Management, ManagementRefusedError, ManagementUnreachableError
from topology.plan.changes import Plan
from topology.plan.compare import compare
from topology.plan.look import look, seen_at
from topology.plan.one_broker import check_one_broker
from topology.plan.policies import command, put
from topology.plan.text import change_lines
from topology.releases import known_policies
from topology.settings import TopologySettings

RETRY_S = 2.0


@click.command("apply")
@click.option(
    "--wait", "wait_s", type=float, default=60.0, show_default=True, help="Seconds to wait for the broker."
)
def apply_command(wait_s: float) -> None:
    """Declare what is missing and set Redrive's own policies. Deletes nothing, purges nothing, and changes
    nothing else that exists.

    Policies (message TTL, consumer timeout) need REDRIVE_MANAGEMENT_URL and a user with the tag policymaker.
    Without, all else is declared, and the commands that set them are printed with exit code 1.

    Where an entity exists and is another one, every conflict is printed, nothing is declared, exit code 4.
    """
    settings, _, entities = configured()
    deadline = time.monotonic() + wait_s
    while True:
        try:
            policies = _apply(settings, entities)
        except (BrokerUnreachableError, ManagementUnreachableError) as error:
            if time.monotonic() >= deadline:
                fail("apply", error, exits.FAILED)
            click.echo(f"waiting for the broker: {error}; is it up, and its URL right?", err=True)
            time.sleep(min(RETRY_S, max(deadline - time.monotonic(), 0)))
        except ConflictError as error:
            fail("apply", f"{error}\nNothing was deleted. Run: topology migrate", exits.CONFLICT)
        except TopologyError as error:
            fail("apply", error, exits.FAILED)
        else:
            break
    counts = f"{len(entities.exchanges)} exchanges, {len(entities.queues)} queues"
    also = f", {len(policies)} policies" if policies else ""
    click.echo(f"topology: {counts}, {len(entities.bindings)} bindings{also} at {settings.address}")


def _apply(settings: TopologySettings, entities: Entities) -> Sequence[Policy]:
    """Policies first: a queue must not be a moment without its message TTL."""
    have = look(settings, entities)
    found = compare(entities, have)
    if found.conflicts:
        lines = [line for change in found.conflicts for line in change_lines(change)]
        raise ConflictError("\n".join([f"{len(found.conflicts)} conflicts at {seen_at(settings)}", *lines]))
    if settings.management_url is not None:
        with Management(settings.management_url.get_secret_value()) as management:
            check_one_broker(settings.address, management)
    policies, _ = known_policies(entities.policies, have.release())
    unset = _set(settings, policies, found)
    apply(settings.address, entities)
    for change in found.of("left out"):
        click.echo("\n".join(change_lines(change)))
    if unset:
        fail("apply", "\n".join(unset), exits.FAILED)
    return policies


def _set(settings: TopologySettings, policies: Sequence[Policy], found: Plan) -> list[str]:
    """Set those that are missing or differ. Returns what to say of those that could not be."""
    vhost = settings.address.vhost
    if settings.management_url is None:
        why = "REDRIVE_MANAGEMENT_URL is not set"
        return _by_hand(vhost, policies, why) if policies else []
    names = {change.name for change in found.of("set")}
    wanted = [policy for policy in policies if policy.name in names]
    with Management(settings.management_url.get_secret_value()) as management:
        for number, policy in enumerate(wanted):
            try:
                put(management, vhost, policy)
            except ManagementRefusedError as error:
                return _by_hand(vhost, wanted[number:], str(error))
    return []


def _by_hand(vhost: str, policies: Sequence[Policy], why: str) -> list[str]:
    names = ", ".join(policy.name for policy in policies)
    return [
        f"all else is declared, but these policies are not set: {names} ({why}). Run:",
        *(f"    {command(vhost, policy)}" for policy in policies),
    ]
