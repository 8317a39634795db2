"""Queues of other programs and of other vhosts."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

import pytest

from tests.support.databases import Database
from tests.support.graveyard import Graveyard, order, plain
from tests.support.processes import Processes
from tests.support.servers import Servers
from tests.support.vhosts import Vhost, fresh_vhost
from tests.support.waiting import eventually

DEAD = "theirs/dead, 50%"


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


@pytest.fixture
def abroad(servers: Servers) -> Iterator[Vhost]:
    """Another vhost, with a queue whose name needs escapes, of a program without Celery."""
    with fresh_vhost(servers.urls.amqp, servers.urls.management) as made:
        declare(made, DEAD)
        yield made


def declare(vhost: Vhost, dead: str, work: str = "orders") -> None:
    with vhost.channel() as channel:
        channel.queue_declare(dead, durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        channel.queue_declare(work, durable=True, arguments=arguments)


def in_vhost(graveyard: Graveyard, vhost: Vhost) -> Graveyard:
    """To publish and reject there; nothing of the topology is declared."""
    there = copy(graveyard)
    there.vhost = vhost
    return there


def test_a_queue_of_another_vhost_is_drained_and_its_namesakes_here_are_left_alone(
    graveyard: Graveyard, abroad: Vhost
) -> None:
    graveyard.job("job-1", "QUEUED")
    there = in_vhost(graveyard, abroad)
    there.bury("orders", order("job-1"))
    there.bury("orders", plain(b"\xff no celery"))
    process = graveyard.start(REDRIVE_WATCH=f"//{abroad.vhost}/theirs%2Fdead%2C 50%25")
    process.wait_for_log(f"draining {DEAD} of vhost {abroad.vhost}")
    task, other = graveyard.until_stored(2)

    # `orders` is a queue there too, and none of ours.
    assert [(row["dlq"], row["queue"], row["reason"]) for row in (task, other)] == [
        (DEAD, "orders", "rejected")
    ] * 2
    assert (task["task"], task["job_id"]) == ("orders.place", None)
    assert graveyard.shown(other["id"])["vhost"] == abroad.vhost
    refused = graveyard.dlq_here("replay", str(other["id"]), "--no-wait")
    assert refused.exit_code == 1
    assert "which queue of this vhost" in refused.stderr
    assert graveyard.job_row("job-1")["state"] == "QUEUED"
    vhosts = "select vhost from redrive.drain_sessions where queue = $1"
    assert graveyard.database.value(vhosts, DEAD) == abroad.vhost
    eventually(lambda: abroad.depth(DEAD) == 0, 10, "both are acked")
    checked = graveyard.dlq_here("check").stdout
    assert f"vhost {abroad.vhost}: OK" not in checked, "it is not watched there"


def test_equal_letters_of_two_vhosts_are_two(graveyard: Graveyard, abroad: Vhost) -> None:
    declare(graveyard.vhost, DEAD, "theirs")
    message = plain(b"x", message_id="same")
    for where in (graveyard, in_vhost(graveyard, abroad)):
        where.publish(DEAD, message)
    watch = "theirs%2Fdead%2C 50%25"
    graveyard.start(REDRIVE_WATCH=f"//{abroad.vhost}/{watch},//{graveyard.vhost.vhost}/{watch}")
    stored = graveyard.until_stored(2)
    assert [row["possible_duplicate"] for row in stored] == [False, False]


def test_a_vhost_that_is_not_there_holds_up_no_other_queue(graveyard: Graveyard) -> None:
    process = graveyard.start(REDRIVE_WATCH="//nowhere/dead")
    process.wait_for_log("vhost nowhere")
    graveyard.publish("orders.dlq", plain(b"x"))
    graveyard.until_stored(1)
    assert process.terminate() == 0


def test_check_looks_at_every_vhost(graveyard: Graveyard, abroad: Vhost) -> None:
    graveyard.settings["REDRIVE_WATCH"] = f"//{abroad.vhost}/theirs%2Fdead%2C 50%25,//{abroad.vhost}/gone"
    checked = graveyard.dlq_here("check")
    assert checked.exit_code == 1
    assert f"queue {DEAD}: OK (0 letters wait" in checked.stdout
    assert "queue gone: " in checked.stdout
    assert "404 NOT_FOUND" in checked.stdout


def test_a_stream_is_refused_and_holds_up_no_other_queue(graveyard: Graveyard) -> None:
    with graveyard.vhost.channel() as channel:
        channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    graveyard.publish("stream", plain(b"kept there"))
    graveyard.settings["REDRIVE_WATCH"] = "stream"
    checked = graveyard.dlq_here("check")
    assert (checked.exit_code, "queue stream: it is a stream" in checked.stdout) == (1, True)
    process = graveyard.start()
    process.wait_for_log("stopped draining stream: it is a stream")
    graveyard.publish("orders.dlq", plain(b"x"))
    graveyard.until_stored(1)
    assert "draining stream action=draining" not in process.log


def test_a_watched_queue_that_goes_and_comes_back_is_drained_again(graveyard: Graveyard) -> None:
    declare(graveyard.vhost, DEAD, "theirs")
    process = graveyard.start(REDRIVE_WATCH=f"//{graveyard.vhost.vhost}/theirs%2Fdead%2C 50%25")
    for number in range(2):
        process.wait_for_log(f"draining {DEAD}")
        graveyard.publish(DEAD, plain(str(number).encode(), message_id="same"))
        graveyard.until_stored(number + 1)
        process.forget_log()
        with graveyard.vhost.channel() as channel:
            channel.queue_delete(DEAD)
        process.wait_for_log(f"waiting for queue {DEAD}")
        with graveyard.vhost.channel() as channel:
            channel.queue_declare(DEAD, durable=True, arguments={"x-queue-type": "quorum"})
