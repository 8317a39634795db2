"""Consuming through a connection on the test's own loop, against a real broker."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

import pytest

from tests.integration.test_publisher import declare, publishing, send, until
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually_async
from topology.address import AmqpAddress
from topology.broker_errors import BrokerAway, ChannelClosed
from topology.connection import BrokerConnection, Delivery, connect, open_connection
from topology.headers import PUBLISH
from topology.messages import Message
from topology.wire import HeaderEntry, OddTimestamp, Properties, encode_value, split

pytestmark = pytest.mark.anyio


async def test_a_timestamp_out_of_range_between_good_messages_reaches_the_consumer_byte_for_byte(
    vhost: Vhost,
) -> None:
    declare(vhost, "q")
    odd = [
        (b"S\x00\x00\x00\x02\xff\xfe", b"text"),
        (b"T" + b"\xff" * 8, b"time"),
        (b"d" + struct.pack(">d", 1.5), b"double"),
        (b"x\x00\x00\x00\x01\x00", b"\xff\xfe"),
    ]
    poison = Properties(
        headers=(HeaderEntry(PUBLISH.encode(), encode_value("t")), *(HeaderEntry(k, v) for v, k in odd)),
        message_id=b"\xff",
        delivery_mode=2,
    )
    got: list[Delivery] = []
    async with publishing(vhost.amqp_url) as publisher:
        await send(publisher, "q", body=b"before")
        await publisher.publish("", "q", Message(poison.encode(), b"poison"), "t")
        await send(publisher, "q", body=b"behind")
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        channel = await connection.channel(prefetch=10)
        await channel.consume("q", got.append)
        await until(lambda: len(got) == 3, "three deliveries")
        channel.ack(got[-1].tag, multiple=True)
        assert [delivery.body for delivery in got] == [b"before", b"poison", b"behind"]
        found = split(got[1].properties)
        # The broker may sort the entries; their bytes are the publisher's.
        assert set(found.headers or ()) >= set(poison.headers or ())
        assert found.message_id == b"\xff"
        assert found.get_header("time") == OddTimestamp(2**64 - 1)
        assert (got[1].exchange, got[1].routing_key, got[1].redelivered) == ("", "q", False)
        assert not connection.closed.done()


async def test_prefetch_bounds_what_is_unsettled(vhost: Vhost) -> None:
    declare(vhost, "q")
    got: list[Delivery] = []
    async with publishing(vhost.amqp_url) as publisher:
        await asyncio.gather(*(send(publisher, "q") for _ in range(10)))
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        channel = await connection.channel(prefetch=4)
        await channel.consume("q", got.append)
        await until(lambda: len(got) == 4, "four deliveries")
        assert (await connection.inspect("q")).messages == 6
        channel.ack(got[-1].tag, multiple=True)
        await until(lambda: len(got) == 8, "four more")
        await channel.close()
        with pytest.raises(BrokerAway):
            channel.ack(got[-1].tag)

        async def returned() -> bool:
            return (await connection.inspect("q")).messages == 6

        await eventually_async(returned, what="the unsettled four are in the queue again")


async def test_a_cancelled_consumer_returns_nothing_to_the_queue_by_itself(vhost: Vhost) -> None:
    declare(vhost, "q")
    async with publishing(vhost.amqp_url) as publisher:
        await asyncio.gather(*(send(publisher, "q", body=bytes(2_000)) for _ in range(2_000)))
    got: list[Delivery] = []
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        channel = await connection.channel()
        first = asyncio.Event()

        def on_delivery(delivery: Delivery) -> None:
            got.append(delivery)
            first.set()

        consumer = await channel.consume("q", on_delivery)
        await first.wait()
        at_cancel = len(got)
        await channel.cancel(consumer)
        assert len(got) > at_cancel
        channel.ack(got[-1].tag, multiple=True)
        left = (await connection.inspect("q")).messages
        assert len(got) + left == 2_000
        await channel.consume("q", got.append)
        await until(lambda: len(got) == 2_000, "the rest")
        assert [delivery for delivery in got if delivery.redelivered] == []
        assert not consumer.cancelled.done()


async def test_a_deleted_queue_ends_its_consumer_and_no_other(vhost: Vhost) -> None:
    declare(vhost, "doomed")
    declare(vhost, "kept")
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        channel = await connection.channel()
        doomed = await channel.consume("doomed", lambda _delivery: None)
        kept = await channel.consume("kept", lambda _delivery: None)
        vhost.management.delete(f"/api/queues/{quote(vhost.vhost, safe='')}/doomed").raise_for_status()
        async with asyncio.timeout(20):
            assert "'doomed'" in await doomed.cancelled
        assert not kept.cancelled.done()
        assert channel.is_open


async def test_a_missing_queue_closes_the_channel_with_404_and_leaves_the_connection(vhost: Vhost) -> None:
    declare(vhost, "q")
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        channel = await connection.channel()
        with pytest.raises(ChannelClosed) as missing:
            await channel.consume("missing", lambda _delivery: None)
        assert missing.value.code == 404
        assert (await channel.closed) is missing.value
        with pytest.raises(ChannelClosed):
            channel.ack(1)
        with pytest.raises(ChannelClosed):
            await connection.inspect("missing")
        assert (await connection.inspect("q")).consumers == 0


async def test_a_wrong_tag_surfaces_as_a_closed_channel(vhost: Vhost) -> None:
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        channel = await connection.channel()
        channel.ack(99)
        async with asyncio.timeout(20):
            reason = await channel.closed
        assert isinstance(reason, ChannelClosed)
        assert reason.code == 406


async def test_a_lost_connection_surfaces_and_fails_what_waits(
    vhost: Vhost, proxy: Callable[..., TcpProxy]
) -> None:
    declare(vhost, "q")
    link = proxy(vhost.amqp_url)
    async with open_connection(AmqpAddress.parse(link.url), "test") as connection:
        channel = await connection.channel()
        link.hold()
        waiting = asyncio.create_task(channel.passive_declare("asked-for"))
        await until(lambda: link.holds(b"asked-for"), "the question is on its way")
        link.refuse()
        with pytest.raises(BrokerAway):
            await waiting
        async with asyncio.timeout(20):
            assert isinstance(await connection.closed, BrokerAway)
        with pytest.raises(BrokerAway):
            channel.ack(1)
        with pytest.raises(BrokerAway):
            await connection.channel()


async def test_cancelling_a_wait_for_the_end_does_not_end_anything(vhost: Vhost) -> None:
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        channel = await connection.channel()
        for end in (connection.closed, channel.closed):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await end
        assert not connection.closed.done()
        assert not channel.closed.done()


async def test_a_stuck_network_does_not_keep_close_waiting(
    vhost: Vhost, proxy: Callable[..., TcpProxy]
) -> None:
    link = proxy(vhost.amqp_url)
    connection = await connect(AmqpAddress.parse(link.url), "test")
    link.hold()
    async with asyncio.timeout(20):
        await connection.close()
    assert connection.closed.done()


async def test_a_refused_log_in_tells_the_reason(vhost: Vhost) -> None:
    wrong = replace(AmqpAddress.parse(vhost.amqp_url), password="wrong")
    with pytest.raises(BrokerAway, match="ACCESS_REFUSED"):
        await connect(wrong, "test")


async def test_a_missing_vhost_tells_the_reason(vhost: Vhost) -> None:
    missing = AmqpAddress.parse(vhost.amqp_url + "-missing")
    with pytest.raises(BrokerAway, match="not found"):
        await connect(missing, "test")


async def test_what_one_turn_of_the_loop_sends_is_written_at_once_and_in_its_order(vhost: Vhost) -> None:
    declare(vhost, "q")
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test") as connection:
        channel = await connection.channel()
        transport = connection._connection._transport
        writes, write = 0, transport.write

        def counted(data: bytes) -> None:
            nonlocal writes
            writes += 1
            write(data)

        transport.write = counted
        for number in range(50):
            channel.publish(b"", b"q", Properties(delivery_mode=2).encode(), b"%d" % number)
        channel.publish(b"", b"q", Properties(delivery_mode=2).encode(), b"x" * 300_000)
        await eventually_async(lambda: _has(connection, "q", 51), 30, "all have arrived")

        assert writes < 20, "and not three for each"
    bodies = [base64.b64decode(message["payload"]) for message in vhost.get("q", 51)]
    assert bodies == [*(b"%d" % number for number in range(50)), b"x" * 300_000]


async def _has(connection: BrokerConnection, queue: str, messages: int) -> bool:
    return (await connection.inspect(queue)).messages == messages
