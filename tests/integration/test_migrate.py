"""`topology migrate` against a real broker, with messages in the queues and traffic on them."""

from __future__ import annotations

import subprocess
from collections import Counter
from typing import Any

import pytest

from tests.support.migrating import OLD, QUORUM, Publisher, Worker, declared, traffic
from tests.support.processes import clean_environment, console_script
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.headers import DELIVERY_COUNTERS as COUNTERS
from topology.ladder import route
from topology.names import MIGRATING, moving
from topology.wire import RawProperties, install, properties

QUIET = "7"
TOPOLOGIES = {"OLD": OLD, "QUORUM": QUORUM}


def migrate(
    vhost: Vhost, topology: str, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(
        {
            "REDRIVE_AMQP_URL": vhost.amqp_url,
            "REDRIVE_MANAGEMENT_URL": vhost.management_url,
            "REDRIVE_TOPOLOGY": f"tests.support.migrating:{topology}",
        }
        | settings
    )
    command = console_script("topology.cli:main", "migrate", "--quiet", QUIET, *arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)


def arguments_of(vhost: Vhost, queue: str) -> dict[str, Any]:
    found = vhost.queue(queue)
    assert found is not None, queue
    return dict(found["arguments"])


def bound(vhost: Vhost, queue: str) -> list[str]:
    """The exchanges that a queue is bound to."""
    found = vhost.management.get(f"/api/queues/{vhost.vhost}/{queue}/bindings").raise_for_status().json()
    return [each["source"] for each in found if each["source"]]


def bodies(vhost: Vhost, queue: str) -> list[bytes]:
    """Taken off the queue, in order."""
    with vhost.channel() as channel:
        taken = []
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            taken.append(bytes(got[2]))
        return taken


@pytest.mark.parametrize(
    ("old", "new", "kind"), [("OLD", "QUORUM", "quorum"), ("QUORUM", "STRICT", "quorum")]
)
def test_a_queue_is_migrated_while_it_is_published_to_and_consumed(
    vhost: Vhost, old: str, new: str, kind: str
) -> None:
    want = declared(vhost, TOPOLOGIES[old])
    with traffic(vhost, "jobs") as (publisher, workers):
        eventually(lambda: len(publisher.sent) > 50, 20, "traffic")
        done = migrate(vhost, new, "--yes")
        before = len(publisher.sent)
        eventually(lambda: len(publisher.sent) > before + 50, 20, "traffic goes on")
        sent = publisher.end()
        eventually(lambda: sum(worker.worked.total() for worker in workers) >= len(sent), 20, "all is worked")
        worked = sum((worker.end() for worker in workers), Counter[bytes]())

    assert (done.returncode, done.stderr) == (0, "")
    assert worked == Counter(sent)
    assert all(worker.cancelled for worker in workers)  # so each knows to consume again
    assert arguments_of(vhost, "jobs")["x-queue-type"] == kind
    assert bound(vhost, "jobs") == [b.source for b in want.bindings if b.destination == "jobs"]
    assert vhost.queue(moving("jobs")) is None
    assert migrate(vhost, new, "--yes").returncode == 0


def test_a_message_keeps_its_bytes_and_its_place(vhost: Vhost) -> None:
    install()
    declared(vhost, QUORUM)
    headers = {"double": 0.5, "deep": {"list": [1, 2**40, None, True, b"\x00\xff"]}, "CC": ["elsewhere"]}
    odd = [
        properties(headers=headers, expiration="3600000", priority=4, timestamp=2**40, delivery_mode=1),
        properties(content_type="a/b", correlation_id="c", reply_to="r", message_id="m", app_id="ü"),
        properties(),
    ]
    with vhost.channel() as channel:
        channel.queue_declare("elsewhere", durable=True)
        channel.confirm_delivery()
        for number in range(300):
            channel.basic_publish("", "jobs", b"%d" % number, RawProperties(odd[number % 3].encode()))
        before = [channel.basic_get("jobs")[1].raw for _ in range(3)]
    copies = vhost.depth("elsewhere")

    done = migrate(vhost, "STRICT", "--yes")

    assert done.returncode == 0, done.stderr
    with vhost.channel() as channel:
        after = [channel.basic_get("jobs") for _ in range(300)]
    assert [body for _, _, body in after] == [b"%d" % number for number in range(300)]
    assert [counted.split().without_headers(COUNTERS).encode() for _, counted, _ in after[:3]] == [
        raw.split().without_headers(COUNTERS).encode() for raw in map(RawProperties, before)
    ]
    assert {method.routing_key for method, _, _ in after} == {"jobs"}
    assert vhost.depth("elsewhere") == copies


def test_a_ladder_step_gets_another_delay_and_its_messages_come_back(vhost: Vhost) -> None:
    declared(vhost, QUORUM, jobs_retry_500ms={"x-message-ttl": 3_600_000})
    way = route(QUORUM.queues[0], 0.5, time_scale=1, now_ms=0)
    with vhost.channel() as channel:
        channel.confirm_delivery()
        for number in range(20):
            channel.basic_publish(way.exchange, way.routing_key, b"%d" % number, mandatory=True)

    done = migrate(vhost, "QUORUM", "--yes")

    assert done.returncode == 0, done.stderr
    assert "x-message-ttl: 3,600,000 -> 500" in done.stdout
    eventually(lambda: vhost.depth("jobs") == 20, 10, "they are due")
    assert bodies(vhost, "jobs") == [b"%d" % number for number in range(20)]
    assert vhost.depth("redrive.unrouted.dlq") == 0


def test_a_dead_letter_queue_keeps_its_letters_and_their_history(vhost: Vhost) -> None:
    install()
    declared(vhost, QUORUM, jobs_dlq={"x-max-length": 10_000})
    with vhost.channel() as channel:
        channel.confirm_delivery()
        for number in range(50):
            channel.basic_publish("", "jobs", b"%d" % number, mandatory=True)
    rejecting = Worker(vhost, "jobs", reject=True)
    rejecting.start()
    publisher = Publisher(vhost, "jobs")
    publisher.start()

    done = migrate(vhost, "QUORUM", "--yes")

    sent = {*publisher.end(), *(b"%d" % number for number in range(50))}
    assert done.returncode == 0, done.stderr
    # A letter that was under way when its target was deleted is sent again after 180 s.
    eventually(lambda: vhost.depth("jobs.dlq") >= len(sent), 200, "all are letters")
    rejecting.end()
    with vhost.channel() as channel:
        letters = [channel.basic_get("jobs.dlq") for _ in range(vhost.depth("jobs.dlq"))]
    assert {body for _, _, body in letters} == sent
    assert len(letters) <= len(sent) + 50  # twice bound to both queues for a moment, here under load
    deaths = {(p.headers["x-death"][0]["queue"], p.headers["x-death"][0]["reason"]) for _, p, _ in letters}
    assert deaths == {("jobs", "rejected")}
    assert "x-max-length" not in arguments_of(vhost, "jobs.dlq")


def test_a_message_that_a_consumer_holds_stops_it_and_all_is_put_back(vhost: Vhost) -> None:
    want = declared(vhost, QUORUM)
    with vhost.channel() as channel:
        for number in range(10):
            channel.basic_publish("", "jobs", b"%d" % number)
        eventually(lambda: vhost.depth("jobs") == 10, 10, "published")
        held = [channel.basic_get("jobs")[0].delivery_tag for _ in range(3)]

        refused = migrate(vhost, "STRICT", "--yes", "--timeout", "15")

        assert refused.returncode == 4
        assert "consumers still hold 3 messages" in refused.stderr
        assert vhost.depth("jobs") == 7
        assert arguments_of(vhost, "jobs")["x-delivery-limit"] == 20
        assert bound(vhost, "jobs") == [b.source for b in want.bindings if b.destination == "jobs"]
        assert vhost.queue(moving("jobs")) is None
        channel.basic_ack(held[-1], multiple=True)
    assert migrate(vhost, "STRICT", "--yes").returncode == 0
    assert bodies(vhost, "jobs") == [b"%d" % number for number in range(3, 10)]


def test_a_publisher_that_does_not_pause_stops_it_and_nothing_is_lost(vhost: Vhost) -> None:
    declared(vhost, QUORUM)
    publisher = Publisher(vhost, "jobs", gated=False)
    publisher.start()

    refused = migrate(vhost, "STRICT", "--yes", "--timeout", "10")

    sent = publisher.end()
    assert refused.returncode == 4
    assert "somebody still publishes to it through the default exchange" in refused.stderr
    assert sorted(bodies(vhost, "jobs")) == sorted(sent)


def test_what_waited_is_no_publisher_and_takes_no_time_of_the_limit(vhost: Vhost) -> None:
    declared(vhost, QUORUM)
    with vhost.channel() as channel:
        for number in range(20_000):
            channel.basic_publish("", "jobs", b"%d" % number)
        eventually(lambda: vhost.depth("jobs") == 20_000, 60, "published")

    # More than a second of moving, for a limit of one.
    refused = migrate(vhost, "STRICT", "--yes", "--timeout", "1")
    done = migrate(vhost, "STRICT", "--yes")

    assert (refused.returncode, done.returncode) == (4, 0), refused.stderr + done.stderr
    assert "no 7 s without a new message yet" in refused.stderr
    assert "20000 messages are back" in refused.stdout
    assert "somebody still publishes" not in refused.stdout + refused.stderr + done.stdout


def test_one_migration_at_a_time(vhost: Vhost) -> None:
    declared(vhost, QUORUM)
    with vhost.channel() as channel:
        channel.queue_declare(MIGRATING, exclusive=True)
        refused = migrate(vhost, "STRICT", "--yes")
    assert refused.returncode == 1
    assert "another migration runs in this vhost" in refused.stderr
    assert arguments_of(vhost, "jobs")["x-delivery-limit"] == 20


def test_a_dry_run_changes_nothing(vhost: Vhost) -> None:
    declared(vhost, QUORUM)

    dry, wrong = migrate(vhost, "STRICT", "--dry-run"), migrate(vhost, "STRICT", "--queue", "nothing")

    assert (dry.returncode, wrong.returncode) == (3, 2)
    assert "queue jobs: x-delivery-limit: 20 -> 5" in dry.stdout
    assert "refill: move the messages back to jobs" in dry.stdout
    assert arguments_of(vhost, "jobs")["x-delivery-limit"] == 20
    assert vhost.queue(moving("jobs")) is None


def test_without_the_management_api_it_is_refused(vhost: Vhost) -> None:
    declared(vhost, QUORUM)
    environment = clean_environment(
        {"REDRIVE_AMQP_URL": vhost.amqp_url, "REDRIVE_TOPOLOGY": "tests.support.migrating:STRICT"}
    )
    command = console_script("topology.cli:main", "migrate", "--yes")
    refused = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 2
    assert "REDRIVE_MANAGEMENT_URL is not set" in refused.stderr


def test_a_policy_that_would_make_the_holding_queue_forget_is_named(vhost: Vhost) -> None:
    declared(vhost, QUORUM)
    policy = {"pattern": ".*", "definition": {"message-ttl": 60_000}, "apply-to": "all"}
    vhost.management.put(f"/api/policies/{vhost.vhost}/everything", json=policy).raise_for_status()

    refused = migrate(vhost, "STRICT", "--yes")

    assert refused.returncode == 4
    assert "policy 'everything' would apply to jobs.moving" in refused.stderr


def test_a_single_active_consumer_has_to_be_stopped_first(vhost: Vhost) -> None:
    declared(vhost, QUORUM, jobs={"x-single-active-consumer": True})
    with vhost.channel() as channel:
        channel.basic_consume("jobs", lambda *_: None)
        refused = migrate(vhost, "STRICT", "--yes")
    assert refused.returncode == 4
    assert "single active consumer: while its 1 consumers are there" in refused.stderr
    assert migrate(vhost, "STRICT", "--yes").returncode == 0
    assert "x-single-active-consumer" not in arguments_of(vhost, "jobs")
