"""The gate of a queue that is being migrated, and the lock of the one migration in a vhost.

Both are exclusive queues, so they end with the connection of the migration, however that ends.
"""

from __future__ import annotations

import asyncio

from topology.broker_errors import ChannelClosed
from topology.connection import BrokerConnection
from topology.migrate.errors import MigrationError
from topology.names import MIGRATING, gate

ACCESS_REFUSED = 403
RESOURCE_LOCKED = 405
# A binding that only the gate's own connection may take away tells that the gate is shut.
BOUND_TO = "amq.direct"
NOT_FOUND = 404
# A killed migration's connection may take a moment to be noticed.
LOCK_S = 5.0
AGAIN_S = 0.25


async def is_gated(connection: BrokerConnection, queue: str) -> bool:
    """Whether nothing is to be published straight to `queue` for now.

    RabbitMQ confirms what is on its way to a queue while that is deleted, and loses it. Whoever publishes to
    the default exchange asks this first; a publish has to be over 10 s after the question.

    Raises:
        BrokerAway: the connection is gone.
    """
    name = gate(queue)
    channel = await connection.channel()
    try:
        # Of a missing queue this is no error, as every other question would be, in the broker's log too;
        # of one that is another connection's own it is refused, and nothing is unbound (3.10 and 4.3).
        await channel.rpc("queue_unbind", name, BOUND_TO, name)
    except ChannelClosed as closed:
        if closed.code == ACCESS_REFUSED:
            return await _is_there(connection, name)
        if closed.code != RESOURCE_LOCKED:
            raise
        return True
    finally:
        await channel.close()
    return False


async def _is_there(connection: BrokerConnection, name: str) -> bool:
    """For a user who may not write to the queue. One who may not configure it either is told nothing by
    RabbitMQ 4, and goes on: the migration sees what is published, and waits.
    """
    try:
        await connection.inspect(name)
    except ChannelClosed as closed:
        if closed.code not in (NOT_FOUND, RESOURCE_LOCKED, ACCESS_REFUSED):
            raise
        return closed.code == RESOURCE_LOCKED
    return True


async def shut(connection: BrokerConnection, queue: str) -> None:
    """Shut the gate of `queue` until `connection` ends."""
    name = gate(queue)
    await take(connection, name)
    channel = await connection.channel()
    try:
        await channel.bind(name, BOUND_TO, name)
    finally:
        await channel.close()


async def take_lock(connection: BrokerConnection) -> None:
    """Hold the vhost's lock until `connection` ends.

    Raises:
        MigrationError: another migration holds it.
    """
    deadline = asyncio.get_running_loop().time() + LOCK_S
    while True:
        try:
            await take(connection, MIGRATING)
        except ChannelClosed as closed:
            if closed.code != RESOURCE_LOCKED:
                raise
            if asyncio.get_running_loop().time() >= deadline:
                raise MigrationError(f"another migration runs in this vhost ({closed.text})") from closed
            await asyncio.sleep(AGAIN_S)
        else:
            return


async def take(connection: BrokerConnection, name: str) -> None:
    """Declare an exclusive queue."""
    channel = await connection.channel()
    try:
        await channel.rpc("queue_declare", name, exclusive=True)
    finally:
        await channel.close()
