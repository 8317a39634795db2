"""`topology verify`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

import click

from topology import exits
from topology.broker_errors import BrokerAway
from topology.commands.configured import configured, fail
from topology.errors import TopologyError, UnknownQueueError
from topology.management import Management
from topology.plan.one_broker import check_one_broker
from topology.spec import Topology
from topology.verify.check import Check, count
from topology.verify.probing import Probing
from topology.verify.run import Verification


@click.command("verify")
@click.option(
    "--queue", "names", multiple=True, metavar="NAME", help="This work queue only; may be repeated."
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds to wait for retries: longer steps of the ladder get no probe.",
)
@click.option("--strict", is_flag=True, help="Exit 1 also when something was not probed.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def verify_command(names: tuple[str, ...], wait_s: float, strict: bool, output: str) -> None:
    """Follow the ways of dead letters and retries through a live broker, with probes.

    Each path is OK, FAILED with the reason and the fix, or NOT PROBED with the reason; exit 1 when one has
    failed. Safe beside real traffic: no job is touched, and a probe leaves neither a message nor a row.
    """
    settings, topology, _ = configured()
    if settings.management_url is None:
        fail("verify", "REDRIVE_MANAGEMENT_URL is not set: policies are read over it", exits.USAGE)
    try:
        chosen = Topology(tuple(topology.queue(name) for name in dict.fromkeys(names)) or topology.queues)
    except UnknownQueueError as error:
        fail("verify", f"--queue: {error}", exits.USAGE)
    with Management(settings.management_url.get_secret_value()) as management:
        run = Verification(management, settings.address, chosen, settings.time_scale, wait_s)
        try:
            check_one_broker(settings.address, management)
            checks = run.run()
        except BrokerAway as error:
            fail("verify", f"{settings.address}: {error}", exits.FAILED)
        except TopologyError as error:
            fail("verify", error, exits.FAILED)
        except KeyboardInterrupt:
            _interrupted(run.probing)
    _show(checks, output)
    missed = count(checks, "failed") + (count(checks, "not_probed") if strict else 0)
    sys.exit(exits.FAILED if missed else exits.DONE)


def _show(checks: Iterable[Check], output: str) -> None:
    checks = list(checks)
    if output == "json":
        for check in checks:
            shown = {
                name: getattr(check, name) for name in ("path", "queue", "status", "reason", "fix", "seconds")
            }
            click.echo(json.dumps(shown, ensure_ascii=False))
        return
    for check in checks:
        click.echo(check.line)
    totals = (f"{count(checks, 'ok')} OK", f"{count(checks, 'failed')} failed")
    click.echo(f"verified: {', '.join(totals)}, {count(checks, 'not_probed')} not probed")


def _interrupted(probing: Probing | None) -> None:
    left = len(probing.under_way) if probing is not None else 0
    words = (
        "interrupted"
        if not left
        else (
            f"interrupted: {left} probes are under way; as each comes out the dead-letter consumer takes it"
        )
    )
    fail("verify", words, exits.INTERRUPTED)
