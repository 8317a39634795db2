"""However long the consumer's work takes, its connections to the broker live on: heartbeats come in time.

RabbitMQ gives up on a connection that was silent for twice the heartbeat.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.graveyard import Graveyard, order, plain
from tests.support.held_batches import LOCK, hold_batches
from tests.support.memory import peak_bytes
from tests.support.processes import Process
from tests.support.proxy import TcpProxy
from tests.support.shared import Places
from tests.support.stack import Stack
from tests.support.waiting import eventually
from topology.messages import Message

MIB = 1024 * 1024
HEARTBEAT_S = 2
# Of a letter a quarter of a MiB is shown; escapes make more of it.
MUCH_SHOWN = 2 * MIB


class Slow(Graveyard):
    """Its consumer sends a heartbeat each second, on each of two connections, through `amqp`."""

    amqp: TcpProxy
    consumer: Process

    def start(self, *, ready: bool = True, **settings: str) -> Process:
        self.consumer = super().start(
            ready=ready, REDRIVE_AMQP_URL=f"{self.amqp.url}?heartbeat={HEARTBEAT_S}", **settings
        )
        return self.consumer

    def connections_live_on(self) -> None:
        assert "broker_lost" not in self.consumer.log
        assert "lost RabbitMQ" not in self.consumer.log
        assert self.amqp.accepted == 2, "none was opened anew"


@pytest.fixture
def slow(places: Places) -> Iterator[Slow]:
    with ExitStack() as stack:
        made = Slow(*stack.enter_context(places.fresh()))
        made.amqp = stack.enter_context(TcpProxy(made.vhost.amqp_url))
        yield made


def largest(release: tuple[int, int], most: int) -> int:
    """A body's size in bytes that the broker takes: 16 MiB is the limit from 4.0 on."""
    return (15 if release >= (4, 0) else most) * MIB


def test_a_locked_table_and_a_deaf_receiver_of_alerts(slow: Slow) -> None:
    hold_batches(slow)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        slow.start(
            REDRIVE_ALERT_WEBHOOK_URL=f"http://127.0.0.1:{deaf.getsockname()[1]}/",
            REDRIVE_ALERT_WEBHOOK_SECRET="s",
            REDRIVE_ALERT_TIMEOUT_S="60",
        )
        slow.publish("orders.dlq", plain(b"first", message_id="first"))
        deaf.settimeout(30)
        caller, _ = deaf.accept()  # and is never answered
        with caller, slow.holding(LOCK):
            slow.publish("orders.dlq", plain(b"second", message_id="second"))
            eventually(lambda: slow.waits_for(LOCK), 20, "a batch waits")
            before = slow.amqp.heartbeats
            # Eight seconds' worth, of two connections: the broker would have given up after six.
            eventually(lambda: slow.amqp.heartbeats >= before + 16, 40, "heartbeats go on")
            assert [bytes(row["body"]) for row in slow.letters()] == [b"first"]
        slow.until_stored(2)
    eventually(lambda: slow.vhost.depth("orders.dlq") == 0, 10, "all are acked")
    assert slow.database.value("select count(*) from redrive.alerts") == 1
    slow.connections_live_on()


def test_a_body_that_takes_long_to_read(slow: Slow, broker_release: tuple[int, int]) -> None:
    """Millions of lists in one body: of all JSON what Python reads most slowly."""
    slow.start()
    size = largest(broker_release, 32)
    body = b"[[" + b"[]," * (size // 3) + b"1],{},{}]"
    message = Message(order("job-1").properties, body)
    slow.publish("orders", plain(b"before"), message, plain(b"behind"))
    slow.reject("orders", 3)
    letters = slow.until_stored(3, 90)
    assert [len(row["body"]) for row in letters] == [6, len(body), 6]
    assert letters[1]["job_id"] == "job-1"
    eventually(lambda: slow.vhost.depth("orders.dlq") == 0, 10, "all are acked")
    slow.connections_live_on()


def test_a_job_with_a_hundred_thousand_attempts(slow: Slow) -> None:
    slow.start()
    slow.job("job-1", "DEAD", reason="exhausted", error="no", attempt=100_000)
    slow.database.execute(
        "insert into redrive.attempts (job_id, generation, attempt, claim, worker, outcome, reason,"
        " exception_type, message, traceback, ended_at)"
        " select 'job-1', 1, n, gen_random_uuid(), 'w', 'failed', 'exception', 'ValueError', 'no',"
        " repeat('x', 500), now() from generate_series(1, 100000) as n"
    )
    slow.bury("orders", order("job-1"))
    (letter,) = slow.until_stored(1, 60)
    assert (letter["reason"], letter["exception_type"]) == ("exhausted", "ValueError")
    slow.connections_live_on()


def test_letters_as_large_as_the_broker_takes_are_shown_and_sent_again(
    slow: Slow, broker_release: tuple[int, int]
) -> None:
    slow.start()
    size = largest(broker_release, 64)
    bodies = [b"x" * size, b"small"]
    for number, body in enumerate(bodies):
        slow.publish("orders", plain(body, message_id=f"m{number}"))
    slow.reject("orders", len(bodies))
    stored = "select count(*) from redrive.dead_letters"
    eventually(lambda: slow.database.value(stored) == len(bodies), 90, "all are stored")
    rows = slow.database.fetch("select id, body_size from redrive.dead_letters order by id")
    assert [row["body_size"] for row in rows] == [size, 5]
    first = rows[0]["id"]

    for arguments in (["list", "--json"], ["show", str(first)], ["show", str(first), "--json"]):
        shown = slow.dlq_here(*arguments)
        assert (shown.exit_code, len(shown.stdout) < MUCH_SHOWN) == (0, True), arguments
    own = {"REDRIVE_TOPOLOGY": slow.settings["REDRIVE_TOPOLOGY"]}
    stack = Stack(slow.vhost, slow.database, slow.processes, own)
    stack.start_api()
    for path in ("/dead-letters", f"/dead-letters/{first}"):
        assert len(stack.http.get(path).raise_for_status().content) < MUCH_SHOWN
    stack.close()

    sent = slow.dlq("replay", "--queue", "orders", "--yes", "--no-wait")
    assert sent.returncode == 0, sent.stderr
    # Large ones go out each by itself, behind the others.
    got = {hashlib.sha256(slow.take("orders")[2]).digest() for _ in bodies}
    assert got == {hashlib.sha256(body).digest() for body in bodies}
    slow.connections_live_on()


def test_a_replay_of_many_large_letters_holds_few_at_a_time(slow: Slow) -> None:
    slow.start()
    count = 20
    slow.publish("orders.dlq", *(plain(b"%d" % number, message_id=str(number)) for number in range(count)))
    slow.until_stored(count)
    before = peak_bytes(slow.consumer.pid)
    # Larger than they came, so that only the replay is measured.
    slow.database.execute(
        "update redrive.dead_letters set body = decode(repeat('ab', $1), 'hex'), body_size = $1", 12 * MIB
    )
    assert slow.dlq_here("replay", "--queue", "orders", "--yes", "--no-wait").exit_code == 0
    published = "select count(*) from redrive.replay_items where state = 'published'"
    eventually(lambda: slow.database.value(published) == count, 90, "all are sent")
    assert peak_bytes(slow.consumer.pid) - before < 160 * MIB, "of 240 MiB"
    assert slow.vhost.depth("orders") == count
    slow.connections_live_on()
