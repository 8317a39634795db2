"""Dead letters, waiting jobs and retries outlive the broker, whatever delivery mode they were sent with."""

import base64
import time
from collections import Counter

import pika
import pytest

from dev.servers import NotControllable, Servers
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually, let_pass
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.errors import BrokerUnreachableError
from topology.ladder import route
from topology.names import dlq
from topology.spec import Ladder, Topology, WorkQueue

QUEUE = WorkQueue("jobs", Ladder(tick_ms=1_000, steps=6))
# The next one if the broker took longer than that to stop.
DELAYS_S = (8.0, 20.0, 60.0)
AWAY = (BrokerUnreachableError,)
TRANSIENT = pika.BasicProperties(delivery_mode=1)


def test_a_retry_that_falls_due_while_the_broker_is_down_comes_back_once_and_letters_stay(
    servers: Servers, vhost: Vhost
) -> None:
    apply(AmqpAddress.parse(vhost.amqp_url), compile_topology(Topology((QUEUE,))))
    letters, waiting = dlq(QUEUE.name), 5
    with vhost.channel() as channel:
        channel.confirm_delivery()
        for _ in range(10):
            channel.basic_publish("", QUEUE.name, b"doomed", TRANSIENT, mandatory=True)
        for number, (method, _, _) in enumerate(channel.consume(QUEUE.name, inactivity_timeout=10), start=1):
            assert method is not None, "no delivery"
            channel.basic_reject(method.delivery_tag, requeue=False)
            if number == 10:
                break
        channel.cancel()
        for _ in range(waiting):
            channel.basic_publish("", QUEUE.name, b"waits", TRANSIENT, mandatory=True)
    eventually(lambda: vhost.depth(letters) == 10, 10, "the letters have arrived")
    for retries, delay_s in enumerate(DELAYS_S, start=1):
        with vhost.channel() as channel:
            channel.confirm_delivery()
            way = route(QUEUE, delay_s, time_scale=1.0, now_ms=0)
            channel.basic_publish(way.exchange, way.routing_key, b"retried", TRANSIENT, mandatory=True)
            due = time.monotonic() + delay_s
        try:
            servers.stop_broker()
        except NotControllable as error:
            pytest.skip(f"not run: {error}")
        try:
            if in_time := time.monotonic() < due:
                let_pass(due - time.monotonic())
        finally:
            servers.start_broker()
        if in_time:
            break
        eventually(lambda: vhost.depth(QUEUE.name) == waiting + retries, 30, "it is back", ignoring=AWAY)  # noqa: B023
    else:
        pytest.fail("the broker took too long to stop")
    started = time.monotonic()

    # Virtual hosts come up one after the other.
    eventually(lambda: vhost.depth(QUEUE.name) >= waiting + retries, 30, "the retry is back", ignoring=AWAY)
    assert vhost.depths([QUEUE.name, letters]) == {QUEUE.name: waiting + retries, letters: 10}
    bodies = Counter(base64.b64decode(message["payload"]) for message in vhost.get(QUEUE.name, 10))
    assert bodies == {b"waits": waiting, b"retried": retries}
    # RabbitMQ 3.10 gives up at-least-once dead-lettering on the whole node if queues are deleted while their
    # dead-letter workers start: this virtual host goes when they have.
    let_pass(started + 10 - time.monotonic())
