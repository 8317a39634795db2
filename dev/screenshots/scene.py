"""What the pictures show: jobs that wait or are held, dead letters with a history, letters that are stuck."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pika
from pika.adapters.blocking_connection import BlockingChannel

from dev.management import management_client
from dev.waiting import NotYet, Say, wait_for
from topology.address import AmqpAddress
from topology.catalogue import TOPOLOGY
from topology.declare import apply, connection
from topology.depths import count as count_of
from topology.entities import compile_topology
from topology.ladder import route
from topology.names import dlq, dlx
from topology.spec import WorkQueue

QUEUE = TOPOLOGY.queue("payments")
STUCK = TOPOLOGY.queue("webhooks")
# Delays in seconds of jobs that wait while the pictures are taken.
WAITING_S = (60, 62, 70, 120, 250, 300, 600, 900)
READY, HELD, DEAD, STUCK_LETTERS = 5, 2, 3, 2


@contextmanager
def scene(address: AmqpAddress, management_url: str, say: Say) -> Iterator[None]:
    """The sample topology in an empty vhost, with messages in it. One consumer holds some of them."""
    apply(address, compile_topology(TOPOLOGY))
    with connection(address, "a worker") as opened:
        channel = opened.channel()
        channel.confirm_delivery()
        _dead_letters(channel, address, say)
        _stuck_letters(channel)
        channel.basic_publish(dlx(QUEUE.name), "no.such.key", b'{"order": 404}', mandatory=True)
        for delay_s in WAITING_S:
            _retry(channel, QUEUE, delay_s, number=delay_s)
        for number in range(READY + HELD):
            channel.basic_publish("", QUEUE.name, _body(number), _properties(number), mandatory=True)
        channel.basic_qos(prefetch_count=HELD)
        channel.basic_consume(QUEUE.name, lambda *_: None, consumer_tag="a-worker")
        opened.process_data_events(1)
        _shown(address, management_url, say)
        yield


def _dead_letters(channel: BlockingChannel, address: AmqpAddress, say: Say) -> None:
    """Each of them waits half a second on the ladder, fails, and is rejected."""
    for number in range(DEAD):
        _retry(channel, QUEUE, 0.75, number=700 + number)
    rejected = 0

    def reject() -> None:
        nonlocal rejected
        method, _, _ = channel.basic_get(QUEUE.name)
        if method is not None:
            channel.basic_reject(method.delivery_tag, requeue=False)
            rejected += 1
        if rejected < DEAD:
            raise NotYet(f"{rejected} rejected")

    wait_for("jobs from the ladder", reject, seconds=30, say=say)
    _settled(channel, dlq(QUEUE.name), DEAD, say)


def _stuck_letters(channel: BlockingChannel) -> None:
    """Their dead-letter exchange is gone: they stay in the work queue, out of every consumer's sight."""
    channel.exchange_delete(dlx(STUCK.name))
    for number in range(STUCK_LETTERS):
        channel.basic_publish("", STUCK.name, _body(number), _properties(number), mandatory=True)
        method, _, _ = channel.basic_get(STUCK.name)
        channel.basic_reject(method.delivery_tag, requeue=False)


def _shown(address: AmqpAddress, management_url: str, say: Say) -> None:
    """The management API's counts are up to 5 s old."""
    with management_client(management_url, timeout_s=10) as management:

        def ask() -> None:
            rows = management.get(f"/api/queues/{quote(address.vhost, safe='')}").raise_for_status().json()
            seen = {row["name"]: row for row in rows}
            held = seen[QUEUE.name].get("messages_unacknowledged")
            stuck = seen[STUCK.name].get("messages_dlx")
            waiting = sum(row.get("messages", 0) for name, row in seen.items() if ".retry." in name)
            if (held, stuck, waiting) != (HELD, STUCK_LETTERS, len(WAITING_S)):
                raise NotYet(f"held {held}, stuck {stuck}, waiting {waiting}")

        wait_for("the management API's counts", ask, seconds=30, say=say)


def _settled(channel: BlockingChannel, queue: str, count: int, say: Say) -> None:
    def ask() -> None:
        found = count_of(channel, queue).ready
        if found != count:
            raise NotYet(f"{found} in {queue}")

    wait_for(f"{count} letters in {queue}", ask, seconds=30, say=say)


def _retry(channel: BlockingChannel, queue: WorkQueue, delay_s: float, number: int) -> None:
    way = route(queue, delay_s, time_scale=1.0, now_ms=int(time.time() * 1000))
    channel.basic_publish(way.exchange, way.routing_key, _body(number), _properties(number), mandatory=True)


def _body(number: int) -> bytes:
    return b'[["order-%d"], {}, {}]' % number


def _properties(number: int) -> pika.BasicProperties:
    return pika.BasicProperties(
        message_id=f"order-{number}", content_type="application/json", delivery_mode=2,
        headers={"task": "payments.charge_order", "id": f"order-{number}"},
    )  # fmt: skip
