"""The gate of a queue that is being migrated holds back what publishes straight to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlq_consumer.sending import Sender
from storage.replay_steps import Outgoing
from tests.support.vhosts import Vhost, broker_version
from tests.support.waiting import eventually_async
from topology.address import AmqpAddress
from topology.broker_errors import BrokerAway
from topology.connection import BrokerConnection, connect
from topology.migrate.errors import MigrationError
from topology.migrate.gate import is_gated, shut, take_lock
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
        await shut(migration, "shut")
        await eventually_async(
            lambda: _is_open(publisher, "open"), 10, "the publisher", ignoring=(BrokerAway,)
        )
        sender = Sender(publisher)
        held = await sender.send(letters)
        await shut(migration, "open")
        await eventually_async(lambda: _is_held(sender, letters[1]), 10, "a gate shut later holds it")
        await migration.close()
        await eventually_async(lambda: _is_open(publisher, "shut"), 10, "the gate has gone")
        sent = await sender.send(letters[:1])
    finally:
        await migration.close()
        await publisher.close()

    assert {result.token: (result.what, result.why) for result in held} == {
        "token-shut": ("unsent", "queue 'shut' is being migrated"),
        "token-open": ("published", ""),
    }
    assert [result.what for result in sent] == ["published"]
    assert vhost.depth("shut") == 1


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


@pytest.mark.parametrize("configure", [".*", "^$"])
async def test_who_may_not_write_to_queues_is_told_where_the_broker_tells(
    vhost: Vhost, configure: str
) -> None:
    told = configure == ".*" or broker_version(vhost.management_url) < (4, 0)
    name, address = f"stranger-{vhost.vhost}", AmqpAddress.parse(vhost.amqp_url)
    vhost.management.put(f"/api/users/{name}", json={"password": "x", "tags": ""}).raise_for_status()
    rights = {"configure": configure, "write": "^$", "read": "^$"}
    vhost.management.put(f"/api/permissions/{vhost.vhost}/{name}", json=rights).raise_for_status()
    migration = await connect(address, "test-migration")
    stranger = await connect(replace(address, user=name, password="x"), "test-stranger")
    try:
        before = await is_gated(stranger, "jobs")
        await shut(migration, "jobs")
        during = (await is_gated(stranger, "jobs"), await is_gated(stranger, "others"))
        again = await is_gated(stranger, "jobs")  # asking has opened nothing
        await migration.close()
        await eventually_async(lambda: _asked(stranger, "jobs"), 10, "the gate has gone")
    finally:
        await migration.close()
        await stranger.close()
        vhost.management.delete(f"/api/users/{name}").raise_for_status()

    assert (before, during, again) == (False, (told, False), told)


async def _is_held(sender: Sender, letter: Outgoing) -> bool:
    return (await sender.send([letter]))[0].what == "unsent"


async def _asked(connection: BrokerConnection, queue: str) -> bool:
    return not await is_gated(connection, queue)


async def _is_open(publisher: Publisher, queue: str) -> bool:
    return not await publisher.is_gated(queue)
