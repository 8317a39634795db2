"""Whatever is lost between insert and ack: every letter is stored, none twice if it has an identity."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.databases import Database, execute_as_admin
from tests.support.graveyard import Graveyard, plain
from tests.support.held_batches import a_batch_in_hand
from tests.support.processes import Processes
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.messages import Message

Proxy = Callable[..., TcpProxy]


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


def named(count: int) -> list[Message]:
    return [plain(f"m{number}".encode(), message_id=f"m{number}") for number in range(count)]


def nameless(count: int) -> list[Message]:
    return [plain(f"m{number}".encode()) for number in range(count)]


def bodies(graveyard: Graveyard) -> list[bytes]:
    return sorted(bytes(row["body"]) for row in graveyard.letters())


def until_drained(graveyard: Graveyard, count: int, deadline_s: float = 30) -> None:
    """At least `count` rows, and nothing left in the queue, delivered or not."""
    eventually(lambda: len(graveyard.letters()) >= count, deadline_s, f"{count} letters are stored")
    graveyard.processes.started[-1].terminate()
    eventually(lambda: _emptied_by_a_successor(graveyard), 60, "the queue is empty with nothing in hand")


def _emptied_by_a_successor(graveyard: Graveyard) -> bool:
    """Ready messages are all one can count: so what a consumer has in hand must have gone back."""
    if graveyard.depth("orders.dlq") == 0:
        return True
    successor = graveyard.start()
    successor.wait_for_log("letters_stored")
    eventually(lambda: graveyard.depth("orders.dlq") == 0, 20, "the successor has taken all")
    successor.terminate()
    return graveyard.depth("orders.dlq") == 0


@pytest.mark.parametrize(("make", "twice"), [(named, False), (nameless, True)])
def test_killed_between_commit_and_ack(
    graveyard: Graveyard, proxy: Proxy, make: Callable[[int], list[Message]], twice: bool
) -> None:
    sent = make(40)
    graveyard.publish("orders.dlq", *sent)
    amqp = proxy(graveyard.vhost.amqp_url)
    with a_batch_in_hand(graveyard, REDRIVE_AMQP_URL=amqp.url) as first:
        amqp.hold()  # no ack gets through from here on
    graveyard.until_stored(40)
    first.kill()
    amqp.refuse()

    graveyard.start().wait_for_log("letters_stored")
    until_drained(graveyard, 80 if twice else 40)

    stored = graveyard.letters()
    expected = sorted(message.body for message in sent)
    assert bodies(graveyard) == (sorted(expected * 2) if twice else expected)
    # What has no name may be two: kept, and marked.
    assert [row["possible_duplicate"] for row in stored] == [False] * 40 + [True] * (40 if twice else 0)


def test_killed_before_the_commit_leaves_nothing_and_its_successor_waits_for_its_end(
    graveyard: Graveyard,
) -> None:
    sent = named(40)
    graveyard.publish("orders.dlq", *sent)
    with a_batch_in_hand(graveyard) as first:
        first.kill()
        second = graveyard.start(ready=False)
        second.wait_for_log("draining mails.dlq")
        assert graveyard.letters() == []
    second.wait_for_log("draining orders.dlq")
    until_drained(graveyard, 40)

    assert bodies(graveyard) == sorted(message.body for message in sent)


def test_a_consumer_that_was_taken_over_stores_nothing_more(graveyard: Graveyard) -> None:
    process = graveyard.start()
    graveyard.database.execute(
        "update redrive.drain_sessions set ended_at = now() where queue = 'orders.dlq'"
    )
    graveyard.publish("orders.dlq", *named(3))

    process.wait_for_log("was taken over")
    until_drained(graveyard, 3)
    assert len(graveyard.letters()) == 3
    ended = graveyard.database.value("select min(id) from redrive.drain_sessions where queue = 'orders.dlq'")
    assert ended not in {row["session_id"] for row in graveyard.letters()}


def test_postgres_sessions_terminated_in_the_middle(graveyard: Graveyard) -> None:
    sent = named(600)
    graveyard.start(REDRIVE_DLQ_BATCH_LETTERS="20")
    graveyard.publish("orders.dlq", *sent[:300])
    eventually(lambda: len(graveyard.letters()) > 40, 20, "it is at work")
    graveyard.database.cut_connections()
    graveyard.publish("orders.dlq", *sent[300:])
    graveyard.database.cut_connections()

    until_drained(graveyard, 600)
    assert bodies(graveyard) == sorted(message.body for message in sent)


def test_postgres_away_stops_consuming_and_its_return_starts_it_again(
    graveyard: Graveyard, proxy: Proxy
) -> None:
    sent = named(50)
    postgres = proxy(graveyard.database.url)
    process = graveyard.start(REDRIVE_DATABASE_URL=postgres.url)
    postgres.refuse()
    process.wait_for_log("waiting for the database at")
    eventually(lambda: graveyard.vhost.consumers("orders.dlq") == 0, 10, "it has stopped consuming")
    graveyard.publish("orders.dlq", *sent)
    assert graveyard.depth("orders.dlq") == 50

    postgres.resume()
    until_drained(graveyard, 50)
    assert bodies(graveyard) == sorted(message.body for message in sent)
    # No requeue loop: each was delivered once.
    counts = graveyard.database.fetch(
        "select max(id) - min(id) + 1 as ids, count(*) from redrive.dead_letters"
    )
    assert counts == [{"ids": 50, "count": 50}]


def refuse_writes(graveyard: Graveyard, how: str) -> Callable[[], None]:
    """From now on; calling the answer ends it."""
    database = graveyard.database
    if how == "read-only":

        def only_reads(value: str) -> None:
            execute_as_admin(
                database, f'alter database "{database.name}" set default_transaction_read_only = {value}'
            )
            database.cut_connections()

        only_reads("on")
        return lambda: only_reads("off")
    database.execute(
        "create function full_disk() returns trigger language plpgsql as"
        " $$ begin raise exception 'could not extend file' using errcode = 'disk_full'; end $$"
    )
    database.execute(
        "create trigger full_disk before insert on redrive.dead_letters"
        " for each statement execute function full_disk()"
    )
    return lambda: database.execute("drop trigger full_disk on redrive.dead_letters")


@pytest.mark.parametrize(
    ("how", "said"), [("read-only", "read-only transaction"), ("disk full", "could not extend file")]
)
def test_a_database_that_takes_no_writes_is_waited_for(graveyard: Graveyard, how: str, said: str) -> None:
    sent = named(100)
    process = graveyard.start(REDRIVE_DLQ_BATCH_LETTERS="20")
    allow = refuse_writes(graveyard, how)
    graveyard.publish("orders.dlq", *sent)
    eventually(lambda: process.log.count(said) >= 3, 30, "it has tried three times")
    assert graveyard.letters() == []
    allow()
    graveyard.until_stored(100, 40)
    assert bodies(graveyard) == sorted(message.body for message in sent)
    assert {row["state"] for row in graveyard.letters()} == {"open"}, "none is quarantined"
    assert process.log.count(said) < 20, "its pauses grow"
    until_drained(graveyard, 100)


def test_a_network_to_postgres_that_swallows_everything_is_noticed(
    graveyard: Graveyard, proxy: Proxy
) -> None:
    postgres = proxy(graveyard.database.url)
    process = graveyard.start(REDRIVE_DATABASE_URL=postgres.url)
    postgres.hold()
    graveyard.publish("orders.dlq", *named(3))  # a batch is on its way into the silence
    process.wait_for_log("database_lost", 40)
    eventually(lambda: graveyard.vhost.consumers("orders.dlq") == 0, 20, "it has stopped consuming")
    eventually(lambda: graveyard.depth("orders.dlq") == 3, 20, "what it had in hand is back")
    postgres.resume()
    until_drained(graveyard, 3)
    assert len(graveyard.letters()) == 3


def test_letters_that_came_back_again_and_again_are_still_there(graveyard: Graveyard) -> None:
    """RabbitMQ's own default would drop them at the 21st return."""
    sent = named(3)
    graveyard.publish("orders.dlq", *sent)
    with graveyard.vhost.channel() as channel:
        for _ in range(25 * len(sent)):
            method, _, _ = eventually(lambda: channel.basic_get("orders.dlq"), 10, "a letter")
            channel.basic_reject(method.delivery_tag, requeue=True)
    graveyard.start()
    graveyard.until_stored(len(sent))
    assert bodies(graveyard) == [message.body for message in sent]


def test_broker_connection_cut_in_the_middle(graveyard: Graveyard, proxy: Proxy) -> None:
    sent = named(600)
    amqp = proxy(graveyard.vhost.amqp_url)
    graveyard.start(REDRIVE_AMQP_URL=amqp.url, REDRIVE_DLQ_BATCH_LETTERS="20")
    graveyard.publish("orders.dlq", *sent[:300])
    eventually(lambda: len(graveyard.letters()) > 40, 20, "it is at work")
    amqp.cut()
    graveyard.publish("orders.dlq", *sent[300:])
    amqp.cut()

    until_drained(graveyard, 600)
    assert bodies(graveyard) == sorted(message.body for message in sent)


def test_starts_with_broker_and_database_down_and_says_what_it_waits_for(
    graveyard: Graveyard, proxy: Proxy
) -> None:
    amqp = proxy(graveyard.vhost.amqp_url, refusing=True)
    postgres = proxy(graveyard.database.url, refusing=True)
    process = graveyard.start(ready=False, REDRIVE_AMQP_URL=amqp.url, REDRIVE_DATABASE_URL=postgres.url)
    process.wait_for_log("waiting for the database at 127.0.0.1")
    postgres.resume()
    process.wait_for_log("waiting for RabbitMQ at 127.0.0.1")
    amqp.resume()
    process.wait_for_log("draining orders.dlq")
    assert "x@" not in process.log  # the password in the URL


def test_a_deleted_queue_is_waited_for(graveyard: Graveyard) -> None:
    process = graveyard.start()
    with graveyard.vhost.channel() as channel:
        channel.queue_delete("orders.dlq")
    process.wait_for_log("waiting for queue orders.dlq")
    with graveyard.vhost.channel() as channel:
        channel.queue_declare("orders.dlq", durable=True, arguments={"x-queue-type": "quorum"})
    graveyard.publish("orders.dlq", *named(2))
    assert len(graveyard.until_stored(2)) == 2
    assert process.log.count("Run: topology apply") <= 1


def test_a_second_consumer_stands_by_and_takes_over(graveyard: Graveyard) -> None:
    first = graveyard.start()
    second = graveyard.start(ready=False)
    second.wait_for_log("standing by for orders.dlq")
    assert graveyard.vhost.consumers("orders.dlq") == 1
    graveyard.publish("orders.dlq", *named(1))
    graveyard.until_stored(1)

    first.kill()
    second.wait_for_log("draining orders.dlq")
    graveyard.publish("orders.dlq", plain(b"later", message_id="later"))
    graveyard.until_stored(2)


def test_sigterm_ends_it_with_nothing_left_unsettled(graveyard: Graveyard) -> None:
    graveyard.publish("orders.dlq", *named(500))
    process = graveyard.start()
    assert process.terminate() == 0
    stored = len(graveyard.letters())
    eventually(lambda: graveyard.depth("orders.dlq") == 500 - stored, 20, "the rest is back")
