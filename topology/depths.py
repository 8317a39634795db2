"""How many messages and consumers a queue has: asked over AMQP, so exact where statistics lag by seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pika.adapters.blocking_connection import BlockingChannel

from topology.address import AmqpAddress
from topology.declare import connection


@dataclass(frozen=True)
class QueueCount:
    """`ready` leaves out what consumers hold unacknowledged; it is back once they have closed."""

    ready: int
    consumers: int


def count(channel: BlockingChannel, queue: str) -> QueueCount:
    """One queue's count.

    Raises:
        pika.exceptions.ChannelClosedByBroker: there is no such queue (404).
    """
    found = channel.queue_declare(queue, passive=True).method
    return QueueCount(found.message_count, found.consumer_count)


def counts(address: AmqpAddress, queues: Iterable[str], name: str) -> dict[str, QueueCount]:
    """The counts of several queues, over one short connection called `name`.

    Raises:
        BrokerUnreachableError: the broker is away.
    """
    with connection(address, name) as opened:
        channel = opened.channel()
        return {queue: count(channel, queue) for queue in queues}
