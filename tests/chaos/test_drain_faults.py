"""Servers, queues and consumers that go in the middle of a drain: every letter is stored, and none twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy

import pytest

from dev.servers.contract import NotControllable
from tests.support.graveyard import Graveyard, plain
from tests.support.held_batches import a_batch_in_hand
from tests.support.proxy import TcpProxy
from tests.support.servers import Servers
from tests.support.shared import Places
from tests.support.vhosts import Vhost, fresh_vhost
from tests.support.waiting import eventually
from topology.messages import Message

DEAD = "theirs.dead"


@pytest.fixture
def graveyard(places: Places) -> Iterator[Graveyard]:
    with places.fresh() as (vhost, database, processes):
        yield Graveyard(vhost, database, processes)


@pytest.fixture
def abroad(servers: Servers) -> Iterator[Vhost]:
    """Another vhost, with the queue of a program that has neither Celery nor a dead-letter policy of ours."""
    with fresh_vhost(servers.urls.amqp, servers.urls.management) as made:
        with made.channel() as channel:
            channel.queue_declare(DEAD, durable=True)
        yield made


@pytest.fixture
def impatient(servers: Servers) -> Iterator[None]:
    """Queues declared from now on try again each second to forward what they could not: else every 180 s."""

    def wait(ms: int) -> None:
        name = "dead_letter_worker_publisher_confirm_timeout"
        servers.rabbitmqctl("eval", f"application:set_env(rabbit, {name}, {ms}).")

    try:
        wait(1_000)
    except NotControllable as error:
        pytest.skip(f"not run: {error}")
    yield
    wait(180_000)


def named(count: int, first: int = 0) -> list[Message]:
    return [plain(b"x", message_id=f"m{first + number}") for number in range(count)]


def times_stored(graveyard: Graveyard) -> Counter[str]:
    return Counter(row["message_id"] for row in graveyard.letters())


def once(count: int) -> dict[str, int]:
    return {f"m{number}": 1 for number in range(count)}


def test_broker_and_database_are_killed_under_two_consumers(graveyard: Graveyard, servers: Servers) -> None:
    if servers.kind == "environment":
        pytest.skip("not run: servers that the environment names are not ours to stop")
    consumers = [graveyard.start(ready=False, REDRIVE_DLQ_BATCH_LETTERS="10") for _ in range(2)]
    for queue in ("orders.dlq", "mails.dlq"):
        graveyard.publish(queue, *named(200, 0 if queue == "orders.dlq" else 200))
    eventually(lambda: len(graveyard.letters()) > 50, 30, "they are at work")
    try:
        servers.kill_broker()
        for consumer in consumers:
            consumer.wait_for_log("waiting for RabbitMQ", 30)
    finally:
        servers.start_broker()
    graveyard.until_stored(400, 90)
    for consumer in consumers:
        consumer.forget_log()
    try:
        servers.kill_database()
        for consumer in consumers:
            consumer.wait_for_log("stopped consuming", 30)
        drained = ["orders.dlq", "mails.dlq"]
        eventually(lambda: [graveyard.vhost.consumers(q) for q in drained] == [0, 0], 30, "they stopped")
        health = graveyard.dlq("check", "--running")
        assert health.returncode == 1
        assert "queue orders.dlq: no consumer" in health.stdout
        graveyard.publish("orders.dlq", *named(100, 400))
    finally:
        servers.start_database()
    graveyard.until_stored(500, 90)
    assert times_stored(graveyard) == once(500)
    eventually(lambda: set(graveyard.vhost.depths(drained).values()) == {0}, 30, "all are acked")
    assert [consumer.exit_code for consumer in consumers] == [None, None]


def test_the_holder_of_a_strangers_queue_is_killed_between_commit_and_ack(
    graveyard: Graveyard, abroad: Vhost
) -> None:
    there = copy(graveyard)
    there.vhost = abroad
    there.publish(DEAD, *named(30))
    watched = {"REDRIVE_WATCH": f"//{abroad.vhost}/{DEAD}"}
    with TcpProxy(graveyard.vhost.amqp_url) as amqp:
        with a_batch_in_hand(graveyard, REDRIVE_AMQP_URL=amqp.url, **watched) as holder:
            second = graveyard.start(ready=False, **watched)
            second.wait_for_log(f"standing by for {DEAD} of vhost {abroad.vhost}")
            amqp.hold()  # no ack gets through from here on
        graveyard.until_stored(30)
        holder.kill()
        amqp.refuse()
        there.publish(DEAD, *named(5, 30))
        second.wait_for_log(f"draining {DEAD} of vhost {abroad.vhost}", 30)
        graveyard.until_stored(35)
    eventually(lambda: abroad.depth(DEAD) == 0, 20, "the other has them")
    assert second.terminate() == 0
    assert abroad.depth(DEAD) == 0, "and all were acked"
    assert times_stored(graveyard) == once(35)


def make_anew(graveyard: Graveyard) -> None:
    with graveyard.vhost.channel() as channel:
        channel.queue_declare("orders.dlq", durable=True, arguments={"x-queue-type": "quorum"})
        channel.queue_bind("orders.dlq", "orders.dlx", "orders")


def test_letters_of_a_deleted_queue_that_are_in_hand_are_stored(graveyard: Graveyard) -> None:
    graveyard.publish("orders.dlq", *named(20))
    with a_batch_in_hand(graveyard, REDRIVE_DLQ_BATCH_LETTERS="5") as consumer:
        eventually(lambda: graveyard.vhost.depth("orders.dlq") == 0, 20, "all are delivered")
        with graveyard.vhost.channel() as channel:
            channel.queue_delete("orders.dlq")
        assert graveyard.letters() == []
    graveyard.until_stored(20, 30)
    consumer.wait_for_log("waiting for queue orders.dlq", 30)
    make_anew(graveyard)
    graveyard.publish("orders", *named(5, 20))
    graveyard.reject("orders", 5)
    graveyard.until_stored(25, 60)
    assert times_stored(graveyard) == once(25)
    eventually(lambda: graveyard.vhost.depth("orders.dlq") == 0, 20, "all are acked")
    assert consumer.exit_code is None


def test_a_queue_that_is_made_anew_at_once_is_drained(graveyard: Graveyard) -> None:
    """RabbitMQ 3.10.8 then serves a consumer that hears nothing."""
    graveyard.publish("orders.dlq", *named(20))
    consumer = graveyard.start()
    graveyard.until_stored(20)
    with graveyard.vhost.channel() as channel:
        channel.queue_delete("orders.dlq")
        make_anew(graveyard)
    graveyard.publish("orders", *named(5, 20))
    graveyard.reject("orders", 5)
    graveyard.until_stored(25, 60)
    assert times_stored(graveyard) == once(25)
    assert consumer.terminate() == 0
    assert graveyard.vhost.depth("orders.dlq") == 0, "all were acked"


def test_a_full_dead_letter_queue_loses_nothing_and_is_drained_afterwards(
    impatient: None, graveyard: Graveyard
) -> None:
    """The limit is an operator's policy, as ours has none. What RabbitMQ cannot forward stays in the work
    queue."""
    policy = f"/api/policies/{graveyard.vhost.vhost}/full"
    body = {
        "pattern": "^orders.dlq$", "apply-to": "queues",
        "definition": {"max-length": 3, "overflow": "reject-publish"},
    }  # fmt: skip
    graveyard.vhost.management.put(policy, json=body).raise_for_status()
    graveyard.publish("orders", *named(12))
    graveyard.reject("orders", 12)
    eventually(lambda: (graveyard.vhost.queue("orders") or {}).get("messages_dlx"), 30, "some cannot leave")
    assert graveyard.depth("orders.dlq") < 12
    graveyard.start()
    graveyard.until_stored(12, 60)
    assert times_stored(graveyard) == once(12)
    eventually(lambda: not (graveyard.vhost.queue("orders") or {}).get("messages_dlx"), 30, "all have left")
