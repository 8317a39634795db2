"""`dlq check`"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace

import click

from dlq_consumer.commands.running import Load, fail, management_url
from dlq_consumer.stuck import ADVICE, LOOK_S
from storage import regrouping
from storage.errors import MigrationError, StorageError
from storage.groups import RULE
from storage.pool import migrated_pool, ready, where
from storage.settings import StorageSettings
from topology import exits
from topology.address import AmqpAddress
from topology.broker_errors import BrokerAway, ChannelClosed
from topology.connection import BrokerConnection, connect
from topology.errors import InvalidTopologyError
from topology.management import Management, ManagementError
from topology.names import dead_letter_queues
from topology.settings import TopologySettings, load_topology
from topology.stuck import stuck_letters
from topology.watched import Place


@click.command()
@click.option(
    "--running", is_flag=True, help="Fail also when a queue has no consumer: is `dlq consume` at work?"
)
@click.pass_obj
def check(load: Load, running: bool) -> None:
    """One `thing: OK` a line; exit 1 with the next command to run. Starts and changes nothing.

    Without --running also: letters that the broker cannot hand on.

    Example, as a container's health check: dlq check --running
    """
    storage, broker = load(StorageSettings), load(TopologySettings)
    management = management_url(broker)
    home = broker.address.vhost
    try:
        places = [Place(home, queue) for queue in dead_letter_queues(load_topology(broker))]
    except InvalidTopologyError as error:
        fail(str(error), exits.USAGE)
    by_vhost: dict[str, dict[str, None]] = {home: {}}
    for place in (*places, *broker.watched):
        by_vhost.setdefault(place.vhost, {})[place.queue] = None
    checks = [_database(storage), *(() if running else (_groups(storage),))]
    for vhost, queues in by_vhost.items():
        checks.append(_queues(replace(broker.address, vhost=vhost), list(queues), running=running))
    results = [asyncio.run(each) for each in checks]  # a list: each is to say its lines
    if not running:  # that is about one process, and asked often
        results.append(_stuck(management, broker.address.vhost))
    if not all(results):
        sys.exit(exits.FAILED)


async def _database(settings: StorageSettings) -> bool:
    name = f"database {where(settings)}"
    try:
        level = await ready(settings)
    except (MigrationError, StorageError) as error:
        click.echo(f"{name}: {error}")
        return False
    click.echo(f"{name}: OK (level {level})")
    return True


async def _groups(settings: StorageSettings) -> bool:
    """Never a fault: letters of an older rule are found all the same."""
    try:
        async with migrated_pool(settings, "redrive-check") as pool:
            found = await regrouping.census(pool)
    except (MigrationError, StorageError):
        return True  # told of already
    if found is not None and found.old:
        click.echo(f"groups: OK ({found.old} of {found.groups} by an older rule. Run: dlq groups regroup)")
    elif found is not None:
        click.echo(f"groups: OK ({found.groups}, by rule {RULE})")
    return True


async def _queues(address: AmqpAddress, queues: list[str], *, running: bool) -> bool:
    try:
        connection = await connect(address, "redrive-dlq-check")
    except BrokerAway as error:
        click.echo(f"broker {address}: {error}")
        return False
    click.echo(f"broker {address}: OK")
    try:
        return all([await _queue(connection, queue, running=running) for queue in queues])
    finally:
        await connection.close()


def _stuck(url: str, vhost: str) -> bool:
    try:
        with Management(url) as management:
            # What is on its way is counted too; what stays from one statistics to the next is stuck.
            if stuck := stuck_letters(management, vhost):
                time.sleep(LOOK_S)
                stuck = {queue: n for queue, n in stuck_letters(management, vhost).items() if queue in stuck}
    except ManagementError as error:
        click.echo(f"stuck letters: {error}")
        return False
    for queue, count in stuck.items():
        click.echo(f"queue {queue}: {count} dead letters {ADVICE}")
    if not stuck:
        click.echo("stuck letters: OK (none)")
    return not stuck


async def _queue(connection: BrokerConnection, queue: str, *, running: bool) -> bool:
    try:
        state = await connection.inspect(queue)
    except (ChannelClosed, BrokerAway) as error:
        click.echo(f"queue {queue}: {error}. Run: topology apply")
        return False
    if running and state.consumers == 0:
        click.echo(f"queue {queue}: no consumer, {state.messages} letters wait. Run: dlq consume")
        return False
    click.echo(f"queue {queue}: OK ({state.messages} letters wait, {state.consumers} consumers)")
    return True
