"""Confirmed publishing against a real broker, with the faults injected."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually_async
from topology.address import AmqpAddress
from topology.broker_errors import (
    BrokerAway,
    ChannelClosed,
    ConfirmTimeout,
    ConnectionLost,
    Nacked,
    NotPublishable,
    NotSent,
    OutcomeUnknown,
    PropertiesTooLarge,
    PublishTimeout,
    Refused,
    Unroutable,
)
from topology.confirms import MAX_MESSAGES
from topology.connection import open_connection
from topology.headers import PUBLISH, REPLAY
from topology.messages import Message
from topology.publisher import Publisher
from topology.publishes import Publish
from topology.wire import properties

pytestmark = pytest.mark.anyio
Proxies = Callable[..., TcpProxy]


def message(token: str, body: bytes = b"{}", **headers: object) -> Message:
    return Message(properties(headers={PUBLISH: token, **headers}, delivery_mode=2).encode(), body)


def declare(vhost: Vhost, queue: str, **arguments: object) -> None:
    answer = vhost.management.put(
        f"/api/queues/{quote(vhost.vhost, safe='')}/{queue}",
        json={"durable": True, "arguments": {"x-queue-type": "quorum", **arguments}},
    )
    answer.raise_for_status()


async def depth(vhost: Vhost, queue: str) -> int:
    async with open_connection(AmqpAddress.parse(vhost.amqp_url), "test depth") as connection:
        return (await connection.inspect(queue)).messages


@asynccontextmanager
async def publishing(
    url: str, timeout_s: float = 20.0, said: list[str] | None = None
) -> AsyncIterator[Publisher]:
    say = (said if said is not None else []).append
    publisher = Publisher(AmqpAddress.parse(url), "test publisher", timeout_s, say=say)
    await publisher.start()
    try:
        yield publisher
    finally:
        await publisher.close()


async def send(
    publisher: Publisher, queue: str, *, exchange: str = "", body: bytes = b"{}", **headers: object
) -> None:
    token = str(uuid4())
    await publisher.publish(exchange, queue, message(token, body, **headers), token)


async def until(condition: Callable[[], bool], what: str, deadline_s: float = 20) -> None:
    async def check() -> bool:
        return condition()

    await eventually_async(check, deadline_s, what)


async def is_connected(publisher: Publisher) -> None:
    await until(lambda: publisher.connected, "the publisher is connected")


async def are_sent(publisher: Publisher, count: int) -> None:
    await until(lambda: len(publisher._confirms) == count, f"{count} are sent and unconfirmed")


async def outcomes(*publishes: asyncio.Future[None] | asyncio.Task[None]) -> list[type[BaseException] | None]:
    results = await asyncio.gather(*publishes, return_exceptions=True)
    return [type(result) if isinstance(result, BaseException) else None for result in results]


def in_flight(publisher: Publisher, count: int, queue: str) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(send(publisher, queue)) for _ in range(count)]


async def test_5_000_publishes_at_once_are_all_in_the_queue(vhost: Vhost) -> None:
    declare(vhost, "q")
    async with publishing(vhost.amqp_url) as publisher:
        await asyncio.gather(*(send(publisher, "q") for _ in range(5_000)))
    assert await depth(vhost, "q") == 5_000


async def test_unroutable_publishes_among_good_ones_fail_alone(vhost: Vhost) -> None:
    declare(vhost, "q")
    async with publishing(vhost.amqp_url) as publisher:
        targets = ["q" if number % 3 else "nowhere" for number in range(300)]
        results = await asyncio.gather(*(send(publisher, t) for t in targets), return_exceptions=True)
    assert [isinstance(result, Unroutable) for result in results] == [t == "nowhere" for t in targets]
    assert [result for result in results if not isinstance(result, Unroutable)] == [None] * 200
    assert isinstance(results[0], Refused)
    assert "'nowhere'" in str(results[0])
    assert await depth(vhost, "q") == 200


def publish_of(queue: str, **headers: object) -> Publish:
    token = str(uuid4())
    return Publish("", queue, message(token, b"{}", **headers), token)


async def test_publishes_of_one_call_are_told_apart_and_come_in_order(vhost: Vhost) -> None:
    """Good ones, unroutable ones and one that the broker would close the connection over."""
    declare(vhost, "q")
    targets = ["q" if number % 3 else "nowhere" for number in range(3_000)]
    publishes = [publish_of(target, n=number) for number, target in enumerate(targets)]
    publishes[1] = publishes[1]._replace(token="another")
    async with publishing(vhost.amqp_url) as publisher:
        results = await publisher.publish_all(publishes)
        assert await publisher.publish_all([]) == []
    wanted: list[type | None] = [None if target == "q" else Unroutable for target in targets]
    wanted[1] = NotPublishable
    assert [None if result is None else type(result) for result in results] == wanted
    with vhost.channel() as channel:
        numbers = [channel.basic_get("q", auto_ack=True)[1].headers["n"] for _ in range(1_999)]
    assert numbers == [number for number in range(3_000) if number % 3 and number != 1]


async def test_of_one_call_that_is_cancelled_nothing_is_left_behind(vhost: Vhost) -> None:
    declare(vhost, "q")
    async with publishing(vhost.amqp_url) as publisher:
        await send(publisher, "q")
        call = asyncio.create_task(publisher.publish_all([publish_of("q") for _ in range(3_000)]))  # noqa: RUF006
        await asyncio.wait([call], timeout=0)
        assert len(publisher._confirms) == MAX_MESSAGES
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(publisher._confirms) == 0
        await send(publisher, "q")
    assert await depth(vhost, "q") == MAX_MESSAGES + 2  # what was sent is sent, the rest was not


async def test_a_returned_replay_is_known_by_its_replay_token(vhost: Vhost) -> None:
    async with publishing(vhost.amqp_url) as publisher:
        with pytest.raises(Unroutable):
            await publisher.publish("", "nowhere", message("old", b"{}", **{REPLAY: "r"}), "r")


async def test_a_queue_that_rejects_publishes_nacks(vhost: Vhost) -> None:
    declare(vhost, "full", **{"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish"})
    async with publishing(vhost.amqp_url) as publisher:
        await send(publisher, "full")
        with pytest.raises(Nacked, match="queue 'full'") as refused:
            await send(publisher, "full")
    assert isinstance(refused.value, Refused)


async def test_a_missing_exchange_fails_what_was_in_flight_and_the_next_channel_works(
    vhost: Vhost, proxy: Proxies
) -> None:
    declare(vhost, "q")
    link = proxy(vhost.amqp_url)
    async with publishing(link.url) as publisher:
        await send(publisher, "q")
        culprit = asyncio.create_task(send(publisher, "q", exchange="missing"))
        beside = in_flight(publisher, 5, "q")
        with pytest.raises(ChannelClosed) as closed:
            await culprit
        assert closed.value.code == 404
        assert isinstance(closed.value, OutcomeUnknown)
        # Those behind the culprit were never taken.
        assert await outcomes(*beside) == [ChannelClosed] * 5
        await send(publisher, "q")
    assert link.accepted == 1
    assert await depth(vhost, "q") == 2


@pytest.mark.rabbitmq4
async def test_a_body_above_the_brokers_limit_closes_the_channel_only(vhost: Vhost, proxy: Proxies) -> None:
    declare(vhost, "q")
    link = proxy(vhost.amqp_url)
    async with publishing(link.url) as publisher:
        with pytest.raises(ChannelClosed) as closed:
            await send(publisher, "q", body=bytes(17 * 1024 * 1024))
        assert closed.value.code == 406
        await send(publisher, "q")
    assert link.accepted == 1


async def test_properties_that_just_fit_one_frame_pass_and_one_byte_more_is_refused_unsent(
    vhost: Vhost, proxy: Proxies
) -> None:
    declare(vhost, "q")
    link = proxy(vhost.amqp_url)
    async with publishing(link.url) as publisher:
        room = 131_072 - 8 - 12 - len(message("t", pad="").properties)
        await publisher.publish("", "q", message("t", pad="x" * room), "t")
        with pytest.raises(PropertiesTooLarge) as refused:
            await publisher.publish("", "q", message("t", pad="x" * (room + 1)), "t")
        assert (refused.value.size, refused.value.limit) == (131_053, 131_052)
        await send(publisher, "q")
    assert link.accepted == 1


@pytest.mark.parametrize(
    ("routing_key", "sent", "token", "said"),
    [
        ("q", message("a"), "b", "token 'b'"),
        ("q", Message(message("a").properties + b"x", b""), "a", "1 bytes follow"),
        ("k" * 256, message("a"), "a", "routing key is 256 bytes"),
    ],
    ids=["no such token", "malformed properties", "long key"],
)
async def test_what_the_broker_would_close_the_connection_over_is_refused_unsent(
    vhost: Vhost, routing_key: str, sent: Message, token: str, said: str
) -> None:
    async with publishing(vhost.amqp_url) as publisher:
        with pytest.raises(NotPublishable, match=said) as refused:
            await publisher.publish("", routing_key, sent, token)
        assert isinstance(refused.value, NotSent)


async def test_while_the_broker_is_away_publishes_end_unsent_and_later_ones_pass(
    vhost: Vhost, proxy: Proxies
) -> None:
    declare(vhost, "q")
    link = proxy(vhost.amqp_url, refusing=True)
    said: list[str] = []
    async with publishing(link.url, timeout_s=1.5, said=said) as publisher:
        with pytest.raises(BrokerAway, match="Connection refused") as away:
            await send(publisher, "q")
        assert isinstance(away.value, NotSent)
        assert said == [
            f"waiting for RabbitMQ at 127.0.0.1:{link.port} vhost {vhost.vhost}: Connection refused"
        ]
        link.resume()
        await is_connected(publisher)
        await send(publisher, "q")
    assert [line.partition(" ")[0] for line in said] == ["waiting", "connected"]
    assert await depth(vhost, "q") == 1


async def test_a_publish_made_while_the_broker_is_away_goes_out_once_it_is_back(
    vhost: Vhost, proxy: Proxies
) -> None:
    declare(vhost, "q")
    link = proxy(vhost.amqp_url, refusing=True)
    async with publishing(link.url) as publisher:
        waiting = in_flight(publisher, 10, "q")
        link.resume()
        assert await outcomes(*waiting) == [None] * 10
    assert await depth(vhost, "q") == 10


async def test_a_lost_connection_leaves_what_was_sent_unknown_and_comes_back_by_itself(
    vhost: Vhost, proxy: Proxies
) -> None:
    declare(vhost, "q")
    link = proxy(vhost.amqp_url)
    said: list[str] = []
    async with publishing(link.url, said=said) as publisher:
        await send(publisher, "q")
        link.hold()
        sent = in_flight(publisher, 20, "q")
        await are_sent(publisher, 20)
        link.refuse()
        assert await outcomes(*sent) == [ConnectionLost] * 20
        link.resume()
        await send(publisher, "q")
    assert link.accepted == 2
    assert said[0].startswith("lost RabbitMQ at")


async def test_without_a_confirm_in_time_the_outcome_is_unknown_and_the_late_one_harms_nobody(
    vhost: Vhost, proxy: Proxies
) -> None:
    declare(vhost, "q")
    link = proxy(vhost.amqp_url)
    async with publishing(link.url, timeout_s=1.0) as publisher:
        await send(publisher, "q")
        link.hold()
        assert await outcomes(*in_flight(publisher, 3, "q")) == [ConfirmTimeout] * 3
        link.resume()
        assert await outcomes(*in_flight(publisher, 3, "q")) == [None] * 3
    assert await depth(vhost, "q") == 7


async def test_during_an_alarm_publishes_wait_unsent_and_go_out_when_it_ends(vhost: Vhost) -> None:
    declare(vhost, "q")
    async with publishing(vhost.amqp_url, timeout_s=1.5) as publisher:
        await is_connected(publisher)
        tell(publisher, 60, b"\x06memory")
        assert publisher.blocked == "memory"
        with pytest.raises(PublishTimeout, match=r"alarm \(memory\)") as unsent:
            await send(publisher, "q")
        assert isinstance(unsent.value, NotSent)
        assert await depth(vhost, "q") == 0

        waiting = in_flight(publisher, 10, "q")
        tell(publisher, 61, b"")
        assert await outcomes(*waiting) == [None] * 10
    assert await depth(vhost, "q") == 10


def tell(publisher: Publisher, method: int, arguments: bytes) -> None:
    """Hand pika a connection.blocked (60) or .unblocked (61) as the broker writes it: an alarm raised on the
    server would stop every other test."""
    payload = struct.pack(">HH", 10, method) + arguments
    assert publisher._connection is not None
    publisher._connection._connection._on_data_available(
        struct.pack(">BHI", 1, 0, len(payload)) + payload + b"\xce"
    )


async def test_close_waits_for_what_was_sent_and_takes_no_more(vhost: Vhost, proxy: Proxies) -> None:
    declare(vhost, "q")
    link = proxy(vhost.amqp_url)
    publisher = Publisher(AmqpAddress.parse(link.url), "test publisher")
    await publisher.start()
    await send(publisher, "q")
    link.hold()
    sent = in_flight(publisher, 5, "q")
    await are_sent(publisher, 5)
    closing = asyncio.create_task(publisher.close())
    await until(lambda: publisher._closing, "it is closing")
    assert not closing.done()
    link.resume()
    await closing
    assert await outcomes(*sent) == [None] * 5
    with pytest.raises(BrokerAway, match="does not run"):
        await send(publisher, "q")


async def test_close_gives_up_what_was_never_sent(vhost: Vhost, proxy: Proxies) -> None:
    publisher = Publisher(AmqpAddress.parse(proxy(vhost.amqp_url, refusing=True).url), "test publisher")
    await publisher.start()
    waiting = in_flight(publisher, 3, "q")
    await until(lambda: len(publisher._queue) == 3, "all wait to be sent")
    await publisher.close()
    assert await outcomes(*waiting) == [BrokerAway] * 3


async def test_a_cancelled_publish_does_not_disturb_the_others(vhost: Vhost) -> None:
    declare(vhost, "q")
    async with publishing(vhost.amqp_url) as publisher:
        await send(publisher, "q")
        tasks = in_flight(publisher, 20, "q")
        await asyncio.wait(tasks, timeout=0)
        tasks[3].cancel()
        assert await outcomes(*tasks) == [asyncio.CancelledError if n == 3 else None for n in range(20)]
