"""`dlq check`"""

from __future__ import annotations

import asyncio
import sys

import click

from dlq_consumer.commands.running import Load, fail
from storage.errors import MigrationError, StorageError
from storage.pool import ready, where
from storage.settings import StorageSettings
from topology import exits
from topology.broker_errors import BrokerAway, ChannelClosed
from topology.connection import BrokerConnection, connect
from topology.errors import InvalidTopologyError
from topology.names import dead_letter_queues
from topology.settings import TopologySettings, load_topology


@click.command()
@click.option(
    "--running", is_flag=True, help="Fail also when a queue has no consumer: is `dlq consume` at work?"
)
@click.pass_obj
def check(load: Load, running: bool) -> None:
    """One `thing: OK` a line; exit 1 with the next command to run. Starts and changes nothing."""
    storage, broker = load(StorageSettings), load(TopologySettings)
    try:
        queues = dict.fromkeys((*dead_letter_queues(load_topology(broker)), *broker.watch))
    except InvalidTopologyError as error:
        fail(str(error), exits.USAGE)
    checks = (_database(storage), _queues(broker, list(queues), running=running))
    results = [asyncio.run(each) for each in checks]  # a list: each is to say its lines
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


async def _queues(settings: TopologySettings, queues: list[str], *, running: bool) -> bool:
    try:
        connection = await connect(settings.address, "redrive-dlq-check")
    except BrokerAway as error:
        click.echo(f"broker {settings.address}: {error}")
        return False
    click.echo(f"broker {settings.address}: OK")
    try:
        return all([await _queue(connection, queue, running=running) for queue in queues])
    finally:
        await connection.close()


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
