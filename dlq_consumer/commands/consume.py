"""`dlq consume`"""

from __future__ import annotations

import asyncio
import sys

import click

from dlq_consumer import logs
from dlq_consumer.channels.configured import WrongChannelError, channels_of
from dlq_consumer.commands.running import Load, fail, management_url
from dlq_consumer.configuration import Configuration
from dlq_consumer.service import Service
from dlq_consumer.settings import AlertSettings, ConsumerSettings, KeepingSettings, SentrySettings
from outbound.settings import CallbackSettings
from storage.settings import StorageSettings
from topology import exits
from topology.errors import InvalidTopologyError
from topology.names import dead_letter_queues, work_queues_of
from topology.settings import TopologySettings, load_topology


@click.command()
@click.pass_obj
def consume(load: Load) -> None:
    """Drain every dead-letter queue into Postgres, deliver alerts and carry out replays, until told to stop.

    Several may run: each queue is drained by one of them, the others stand by.

    Exit codes: 0 after SIGTERM, 130 after Ctrl-C; the letters in hand are stored first. 2 a setting is wrong.

    Example: REDRIVE_WATCH=billing.dead dlq consume
    """
    broker = load(TopologySettings)
    management = management_url(broker)
    try:
        topology = load_topology(broker)
    except InvalidTopologyError as error:
        fail(str(error), exits.USAGE)
    alerts = load(AlertSettings)
    try:
        channels = channels_of(alerts, load(SentrySettings))
    except WrongChannelError as error:
        fail(str(error), exits.USAGE)
    configuration = Configuration(
        load(StorageSettings), broker, management, topology, load(ConsumerSettings), load(KeepingSettings),
        alerts, channels, load(CallbackSettings),
    )  # fmt: skip
    drained = dead_letter_queues(topology)
    for place in broker.watched:
        name = place.queue
        if place.vhost != broker.address.vhost:
            continue
        if name not in drained and work_queues_of(topology, name):
            fail(f"REDRIVE_WATCH: {name} is a queue of live jobs; draining it would end them", exits.USAGE)
    logs.configure()
    if asyncio.run(_serve(configuration)):
        sys.exit(exits.INTERRUPTED)


async def _serve(configuration: Configuration) -> bool:
    return await Service(configuration).run()
