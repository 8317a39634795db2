"""Dead letters, waiting jobs and retries outlive the broker, whatever delivery mode they were sent with."""

import base64
import time
from collections import Counter

import pika
import pytest

from dev.servers import NotControllable, Servers
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.errors import BrokerUnreachableError
from topology.ladder import route
from topology.names import dlq
from topology.spec import Ladder, Topology, WorkQueue

QUEUE = WorkQueue("jobs", Ladder(tick_ms=1_000, steps=4))
DELAY_S = 8.0
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
        way = route(QUEUE, DELAY_S, time_scale=1.0, now_ms=0)
        channel.basic_publish(way.exchange, way.routing_key, b"retried", TRANSIENT, mandatory=True)
        sent = time.monotonic()
    eventually(lambda: vhost.depth(letters) == 10, 10, "the letters have arrived")
    try:
        servers.stop_broker()
    except NotControllable as error:
        pytest.skip(f"not run: {error}")
    try:
        assert time.monotonic() - sent < DELAY_S, "the broker took too long to stop"
        eventually(lambda: time.monotonic() - sent > DELAY_S, DELAY_S + 1, "the retry is due")
    finally:
        servers.start_broker()
    started = time.monotonic()

    # Virtual hosts come up one after the other.
    away = (BrokerUnreachableError,)
    eventually(lambda: vhost.depth(QUEUE.name) > waiting, 30, "the retry is back", ignoring=away)
    assert vhost.depths([QUEUE.name, letters]) == {QUEUE.name: waiting + 1, letters: 10}
    bodies = Counter(base64.b64decode(message["payload"]) for message in vhost.get(QUEUE.name, 10))
    assert bodies == {b"waits": waiting, b"retried": 1}
    # RabbitMQ 3.10 gives up at-least-once dead-lettering on the whole node if queues are deleted while their
    # dead-letter workers start: this virtual host goes when they have.
    eventually(lambda: time.monotonic() - started > 10, 12, "the queues' dead-letter workers are up")
