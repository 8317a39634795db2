"""The retry ladder in a real broker: never early, in the order of the delays, nothing lost or misled."""

import time
from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.vhosts import Vhost
from tests.support.waiting import LEAST_S
from topology.address import AmqpAddress
from topology.declare import apply, connection
from topology.entities import compile_topology
from topology.ladder import route
from topology.names import dlq
from topology.spec import Ladder, Topology, WorkQueue

# 100 ms ticks: delays up to 6.2 s nominal, in a tenth of that time.
QUEUE = WorkQueue("a.jobs", Ladder(tick_ms=100, steps=6))
OTHER = WorkQueue("jobs", Ladder(tick_ms=100, steps=6))
TOPOLOGY = Topology((QUEUE, OTHER))
SCALE = 0.5
CLOCK_S = 0.001  # the broker's timers count whole milliseconds


def arrivals(channel: BlockingChannel, queue: str, count: int) -> dict[str, float]:
    """Body → time of arrival of `count` messages."""
    seen: dict[str, float] = {}
    for method, _, body in channel.consume(queue, inactivity_timeout=LEAST_S):
        if method is None:
            break
        seen[body.decode()] = time.time()
        channel.basic_ack(method.delivery_tag)
        if len(seen) == count:
            break
    channel.cancel()
    return seen


def send(channel: BlockingChannel, queue: WorkQueue, delay_s: float, body: str) -> float:
    """When it was on its way: a busy broker has it long before its confirm is here."""
    where = route(queue, delay_s, time_scale=SCALE, now_ms=0)
    assert where.due_ms is None
    properties = pika.BasicProperties(delivery_mode=2)
    sent = time.time()
    channel.basic_publish(where.exchange, where.routing_key, body.encode(), properties, mandatory=True)
    return sent


@pytest.fixture
def open_channel(vhost: Vhost) -> Callable[[], AmqpAddress]:
    address = AmqpAddress.parse(vhost.amqp_url)
    apply(address, compile_topology(TOPOLOGY, SCALE))
    return lambda: address


def test_each_delay_comes_back_once_never_early_and_in_order(open_channel: Callable[[], AmqpAddress]) -> None:
    delays = [0, 0.05, 0.1, 0.25, 0.3, 0.7, 1.0, 1.55, 1.6, 2.3, 3.1, 3.3, 4.2, 6.0]
    far_apart = ["0", "0.7", "1.6", "3.1", "6.0"]
    with connection(open_channel(), "test") as opened:
        channel = opened.channel()
        # Not one confirm after the other: on a busy machine that takes as long as the shortest delay.
        sent = {f"{delay}": send(channel, QUEUE, delay, f"{delay}") for delay in reversed(delays)}
        seen = arrivals(channel, QUEUE.name, len(delays))
        left = channel.queue_declare(OTHER.name, passive=True).method.message_count

    assert seen.keys() == sent.keys()
    early = [d for d in delays if seen[f"{d}"] - sent[f"{d}"] < d * SCALE - CLOCK_S]
    assert early == []
    assert [body for body in seen if body in far_apart] == far_apart
    assert left == 0, "a retry of a.jobs reached jobs"


def test_a_short_delay_does_not_wait_behind_a_long_one(open_channel: Callable[[], AmqpAddress]) -> None:
    with connection(open_channel(), "test") as opened:
        channel = opened.channel()
        for number in range(50):
            send(channel, QUEUE, 6.0, f"long {number}")
        send(channel, QUEUE, 0.1, "short")
        seen = arrivals(channel, QUEUE.name, 51)

    assert len(seen) == 51
    assert next(iter(seen)) == "short"


def test_a_retry_whose_work_queue_is_gone_is_kept_in_the_catch_all(
    open_channel: Callable[[], AmqpAddress],
) -> None:
    with connection(open_channel(), "test") as opened:
        channel = opened.channel()
        channel.queue_delete(QUEUE.name)
        send(channel, QUEUE, 0.3, "orphan")
        kept = arrivals(channel, "redrive.unrouted.dlq", 1)

    assert list(kept) == ["orphan"]


def test_a_rejected_message_reaches_its_dead_letter_queue(open_channel: Callable[[], AmqpAddress]) -> None:
    with connection(open_channel(), "test") as opened:
        channel = opened.channel()
        # Whatever key it came with: the dead-letter key is explicit.
        channel.basic_publish("", QUEUE.name, b"direct", mandatory=True)
        send(channel, QUEUE, 0.1, "by the ladder")
        coming = channel.consume(QUEUE.name, inactivity_timeout=LEAST_S)
        for number, (method, _, _) in enumerate(coming, start=1):
            assert method is not None, "no delivery"
            channel.basic_nack(method.delivery_tag, requeue=False)
            if number == 2:
                break
        channel.cancel()
        dead = arrivals(channel, dlq(QUEUE.name), 2)

    assert set(dead) == {"direct", "by the ladder"}


def test_queues_that_share_a_ladder_get_their_own_retries_in_time(vhost: Vhost) -> None:
    ladder = Ladder(tick_ms=100, steps=6, shared="common")
    a, b = WorkQueue("b.a", ladder), WorkQueue("a", ladder)
    apply(AmqpAddress.parse(vhost.amqp_url), compile_topology(Topology((a, b)), SCALE))
    delays = [0.1, 0.7, 1.6, 3.1]
    with connection(AmqpAddress.parse(vhost.amqp_url), "test") as opened:
        channel = opened.channel()
        sent = {f"{queue.name} {delay}": send(channel, queue, delay, f"{queue.name} {delay}")
                for delay in reversed(delays) for queue in (a, b)}  # fmt: skip
        seen = {queue.name: arrivals(channel, queue.name, len(delays)) for queue in (a, b)}

    for name, came in seen.items():
        assert list(came) == [f"{name} {delay}" for delay in delays]
    # Of the first queue only: what came to the second meanwhile waited to be read.
    assert [
        body for body, at in seen["b.a"].items() if at - sent[body] < float(body.split()[1]) * SCALE - CLOCK_S
    ] == []
