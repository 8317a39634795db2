"""`topology migrate`."""

from __future__ import annotations

import asyncio
import sys

import click

from topology import exits
from topology.broker_errors import BrokerAway, BrokerError, ChannelClosed
from topology.commands.configured import Configured, configured, fail
from topology.connection import BrokerConnection, connect
from topology.management import Management, ManagementError
from topology.migrate.errors import MigrationError, UnsafeError
from topology.migrate.gate import NOT_FOUND, take_lock
from topology.migrate.run import Limits, Migration
from topology.migrate.sight import Sight
from topology.migrate.steps import Step
from topology.migrate.work import exchange_conflicts, left_to_do, obstacles
from topology.names import MIGRATING
from topology.plan.have import Have, read
from topology.plan.text import difference_text

NAME = "redrive-topology-migrate"
AGAIN = "nothing is lost; run topology migrate again and it goes on from there"
LIMITS = Limits()


@click.command("migrate")
@click.option("--queue", "only", multiple=True, help="Only this queue; may be given more than once.")
@click.option("--dry-run", is_flag=True, help="Print the steps that are left, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1), default=LIMITS.timeout_s, show_default=True,
    help="Seconds to wait for consumers to finish what they hold, and for publishers to pause.",
)  # fmt: skip
@click.option(
    "--quiet", "quiet_s", type=click.FloatRange(1), default=LIMITS.quiet_s, show_default=True,
    help="Seconds without a new message before a queue is deleted. More than twice the broker's "
    "collect_statistics_interval (5 s), and more than the longest publish of any publisher.",
)  # fmt: skip
def migrate_command(
    only: tuple[str, ...], dry_run: bool, yes: bool, timeout_s: float, quiet_s: float
) -> None:
    """Move queues whose arguments changed, with their messages. Workers may go on.

    Programs that publish straight to such a queue have to be stopped, or have to look at its gate as the
    API's relay does: see docs/topology-migrate.md. Exit 4: not without risk; the reason says what to do.
    """
    setup = configured()
    if setup.settings.management_url is None:
        reason = "REDRIVE_MANAGEMENT_URL is not set: bindings and unacknowledged messages are seen only there"
        fail("migrate", reason, exits.USAGE)
    management = Management(setup.settings.management_url.get_secret_value())
    with management:
        try:
            have = read(management, setup.settings.address.vhost)
            todo = _todo(setup, have, only)
            if not (todo and not dry_run):
                sys.exit(_report(setup, have, only, todo=bool(todo)))
            if not yes and not click.confirm("Migrate now?", err=True):
                sys.exit(exits.FAILED)
            asyncio.run(_migrate(setup, only, management, Limits(quiet_s, timeout_s)))
        except UnsafeError as error:
            fail("migrate", error, exits.CONFLICT)
        except ManagementError as error:
            fail("migrate", error, exits.FAILED)
        except BrokerAway as error:
            fail("migrate", f"{setup.settings.address}: {error}\n{AGAIN}", exits.FAILED)
        except (MigrationError, BrokerError, TimeoutError) as error:
            fail("migrate", f"{error or type(error).__name__}\n{AGAIN}", exits.FAILED)
        except KeyboardInterrupt:
            fail("migrate", f"interrupted: {AGAIN}", exits.INTERRUPTED)
    sys.exit(_report(setup, have, only, todo=False))


def _todo(setup: Configured, have: Have, only: tuple[str, ...]) -> list[tuple[Step, ...]]:
    known = {queue.name for queue in setup.entities.queues}
    if unknown := set(only) - known:
        fail("migrate", f"not in the topology: {', '.join(sorted(unknown))}", exits.USAGE)
    chosen = _chosen(setup, have, only)
    for steps in chosen:
        work = steps[0].work
        for each in work.differences:
            click.echo(f"queue {work.queue}: {difference_text(each)}")
        for step in steps:
            click.echo(f"  {step.stage}: {step.describe()}")
    return chosen


def _chosen(setup: Configured, have: Have, only: tuple[str, ...]) -> list[tuple[Step, ...]]:
    found = left_to_do(setup.entities, have)
    return [steps for steps in found if not only or steps[0].work.queue in only]


def _report(setup: Configured, have: Have, only: tuple[str, ...], *, todo: bool) -> int:
    """What is left, and its exit code."""
    conflicts = list(exchange_conflicts(setup.entities, have))
    for line in conflicts:
        click.echo(line, err=True)
    if conflicts:
        return exits.CONFLICT
    done = f"nothing is left to migrate of {', '.join(only)}" if only else "no queue is left to migrate"
    click.echo("topology migrate: " + ("nothing was changed" if todo else done))
    return exits.CHANGES if todo else exits.DONE


async def _migrate(setup: Configured, only: tuple[str, ...], management: Management, limits: Limits) -> None:
    address = setup.settings.address
    sight = Sight(management, address.vhost)
    consuming = await connect(address, NAME)
    try:
        publishing = await connect(address, f"{NAME}-publish")
        try:
            await take_lock(consuming)
            if not await asyncio.to_thread(sight.is_there, MIGRATING):
                raise UnsafeError(
                    f"{management.address} does not show what was declared at {address}: "
                    "REDRIVE_MANAGEMENT_URL and REDRIVE_AMQP_URL have to be of one broker"
                )
            # Another migration may have ended since we looked.
            have = await asyncio.to_thread(read, management, address.vhost)
            todo = _chosen(setup, have, only)
            for steps in todo:
                consumers = await _consumers(consuming, steps[0].work.queue)
                for reason in obstacles(steps, have, consumers):
                    raise UnsafeError(reason)
            migration = Migration(consuming, publishing, sight, address.user, limits, click.echo)
            try:
                for steps in todo:
                    await migration.queue(steps)
            except ManagementError as error:
                raise MigrationError(str(error)) from error
        finally:
            await publishing.close()
    finally:
        await consuming.close()


async def _consumers(connection: BrokerConnection, queue: str) -> int:
    try:
        return (await connection.inspect(queue)).consumers
    except ChannelClosed as closed:
        if closed.code == NOT_FOUND:
            return 0
        raise UnsafeError(f"{queue}: {closed.text}") from closed
