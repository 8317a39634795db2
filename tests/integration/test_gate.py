"""The gate of a queue that is being migrated holds back what publishes straight to it."""

from __future__ import annotations

import pytest

from dlq_consumer.sending import Sender
from storage.replay_steps import Outgoing
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually_async
from topology.address import AmqpAddress
from topology.broker_errors import BrokerAway
from topology.connection import connect
from topology.migrate.errors import MigrationError
from topology.migrate.gate import is_gated, take, take_lock
from topology.names import gate
from topology.publisher import Publisher
from topology.wire import properties

pytestmark = pytest.mark.anyio


async def test_a_replay_waits_at_the_gate_and_goes_on_when_the_migration_has_ended(vhost: Vhost) -> None:
    address = AmqpAddress.parse(vhost.amqp_url)
    with vhost.channel() as channel:
        channel.queue_declare("shut", durable=True)
        channel.queue_declare("open", durable=True)
    letters = [
        Outgoing(f"token-{target}", 1, target, properties(message_id="m").encode(), b"body", None, None)
        for target in ("shut", "open")
    ]
    publisher = Publisher(address, "test-replay")
    await publisher.start()
    migration = await connect(address, "test-migration")
    try:
        await take(migration, gate("shut"))
        await eventually_async(
            lambda: _is_open(publisher, "open"), 10, "the publisher", ignoring=(BrokerAway,)
        )
        held = await Sender(publisher).send(letters)
        await migration.close()
        await eventually_async(lambda: _is_open(publisher, "shut"), 10, "the gate has gone")
        sent = await Sender(publisher).send(letters[:1])
    finally:
        await migration.close()
        await publisher.close()

    assert {result.token: (result.what, result.why) for result in held} == {
        "token-shut": ("unsent", "queue 'shut' is being migrated"),
        "token-open": ("published", ""),
    }
    assert [result.what for result in sent] == ["published"]
    assert vhost.depths(("shut", "open")) == {"shut": 1, "open": 1}


async def test_the_lock_ends_with_its_connection(vhost: Vhost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topology.migrate.gate.LOCK_S", 0.5)
    address = AmqpAddress.parse(vhost.amqp_url)
    first, second = await connect(address, "first"), await connect(address, "second")
    try:
        await take_lock(first)
        with pytest.raises(MigrationError, match="another migration runs"):
            await take_lock(second)
        assert not await is_gated(second, "anything")
        await first.close()
        monkeypatch.setattr("topology.migrate.gate.LOCK_S", 10)
        await take_lock(second)
    finally:
        await first.close()
        await second.close()


async def _is_open(publisher: Publisher, queue: str) -> bool:
    return not await publisher.is_gated(queue)
