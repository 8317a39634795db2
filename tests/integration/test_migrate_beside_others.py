"""`topology migrate` beside what other programs, and killed migrations, have left on the broker."""

from __future__ import annotations

import pytest

from tests.integration.test_migrate import arguments_of, bodies, bound, migrate
from tests.support.migrating import QUORUM, STRICT, declared
from tests.support.planned import policy, topology
from tests.support.processes import Processes, console_script
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.headers import DELIVERY_COUNTERS as COUNTERS
from topology.migrate.steps import holding_arguments
from topology.names import MIGRATING, dlq, moving
from topology.wire import RawProperties, install, properties

HOLDING = moving("jobs")


def test_a_message_whose_properties_fill_a_frame_is_moved(vhost: Vhost) -> None:
    install()
    declared(vhost, QUORUM)
    largest = properties(headers={"trace": "x" * 131_030}).encode()
    with vhost.channel() as channel:
        channel.confirm_delivery()
        channel.basic_publish("", "jobs", b"body", RawProperties(largest))

    done = migrate(vhost, "STRICT", "--yes")

    assert done.returncode == 0, done.stderr
    with vhost.channel() as channel:
        _, found, body = channel.basic_get("jobs")
    assert (found.split().without_headers(COUNTERS).encode(), body) == (largest, b"body")


def test_another_programs_queue_of_the_holding_queues_name_stays_as_it_is(vhost: Vhost) -> None:
    declared(vhost, QUORUM)
    with vhost.channel() as channel:
        channel.queue_declare(HOLDING, durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", HOLDING, b"theirs")

    nothing, refused = migrate(vhost, "QUORUM", "--yes"), migrate(vhost, "STRICT", "--yes")

    assert (nothing.returncode, nothing.stderr) == (0, "")
    assert refused.returncode == 4
    assert f"queue {HOLDING} is another program's" in refused.stderr
    assert bodies(vhost, HOLDING) == [b"theirs"]
    assert bodies(vhost, "jobs") == []


def test_another_programs_exchange_of_that_name_stays_as_it_is(vhost: Vhost) -> None:
    declared(vhost, QUORUM)
    with vhost.channel() as channel:
        channel.exchange_declare(HOLDING, "fanout", durable=True)
        channel.queue_declare("theirs", durable=True)
        channel.queue_bind("theirs", HOLDING, "")

    refused = migrate(vhost, "STRICT", "--yes")

    assert refused.returncode == 4
    assert f"exchange {HOLDING} is another program's" in refused.stderr
    assert bound(vhost, "theirs") == [HOLDING]


def test_the_exchange_that_a_killed_migration_left_is_deleted(vhost: Vhost) -> None:
    want = declared(vhost, QUORUM)
    with vhost.channel() as channel:
        channel.exchange_declare(HOLDING, "fanout", durable=True)
        channel.queue_bind("jobs", HOLDING, "")

    done = migrate(vhost, "QUORUM", "--yes")

    assert done.returncode == 0, done.stderr
    assert bound(vhost, "jobs") == [b.source for b in want.bindings if b.destination == "jobs"]
    exchanges = vhost.management.get(f"/api/exchanges/{vhost.vhost}").json()
    assert HOLDING not in {each["name"] for each in exchanges}


def test_the_trial_queue_that_a_killed_migration_left_is_in_nobodys_way(vhost: Vhost) -> None:
    declared(vhost, QUORUM)
    with vhost.channel() as channel:
        channel.queue_declare(f"{HOLDING}.trial", durable=True)

    assert migrate(vhost, "STRICT", "--yes").returncode == 0
    assert vhost.queue(f"{HOLDING}.trial") is None


def test_what_another_migration_did_meanwhile_is_not_done_again(vhost: Vhost, processes: Processes) -> None:
    declared(vhost, QUORUM)
    settings = {
        "REDRIVE_AMQP_URL": vhost.amqp_url,
        "REDRIVE_MANAGEMENT_URL": vhost.management_url,
        "REDRIVE_TOPOLOGY": "tests.support.migrating:STRICT",
    }
    with vhost.channel() as other:
        other.queue_declare(MIGRATING, exclusive=True)
        process = processes.start(
            "migrate", console_script("topology.cli:main", "migrate", "--yes"), settings
        )
        process.wait_for_log("tidy: delete", 30)
        other.queue_delete("jobs")
        apply(AmqpAddress.parse(vhost.amqp_url), compile_topology(STRICT))

    assert process.wait(60) == 0, process.log
    assert "jobs: hold:" not in process.log


def test_dead_letters_that_cannot_leave_the_holding_queue_are_not_deleted_with_it(vhost: Vhost) -> None:
    want = declared(vhost, QUORUM)
    (jobs,) = (queue for queue in want.queues if queue.name == "jobs")
    policy(
        vhost,
        "full",
        pattern="^jobs\\.dlq$",
        definition={"max-length": 1, "overflow": "reject-publish"},
    )
    with vhost.channel() as channel:
        channel.queue_declare(HOLDING, durable=True, arguments=dict(holding_arguments(jobs)))
        channel.exchange_declare("outside", "fanout", durable=True)
        channel.queue_bind(HOLDING, "outside", "")

        channel.confirm_delivery()
        eventually(lambda: vhost.is_full(dlq("jobs")), 20, "the dead-letter queue is full")
        expires = RawProperties(properties(expiration="1", delivery_mode=2).encode())
        channel.basic_publish("outside", "", b"expires", expires)
    eventually(lambda: dead(vhost) == 1, 20, "it cannot leave the holding queue")

    stopped = migrate(vhost, "QUORUM", "--yes", "--timeout", "8")

    assert stopped.returncode == 1, stopped.stdout
    assert f"1 dead letters of {HOLDING} wait for a target that does not take them" in stopped.stderr
    assert dead(vhost) == 1


@pytest.mark.parametrize("management", [True, False])
def test_apply_leaves_a_queue_alone_whose_migration_was_interrupted(vhost: Vhost, management: bool) -> None:
    want = declared(vhost, QUORUM)
    (jobs,) = (queue for queue in want.queues if queue.name == "jobs")
    with vhost.channel() as channel:
        channel.queue_declare(HOLDING, durable=True, arguments=dict(holding_arguments(jobs)))
        channel.queue_delete("jobs")

    planned, applied = (topology(vhost, command, management=management) for command in ("plan", "apply"))

    assert (planned.returncode, applied.returncode) == (4, 4)
    assert "topology migrate goes on with it" in planned.stdout
    assert vhost.queue("jobs") is None


def dead(vhost: Vhost) -> int:
    found = vhost.queue(HOLDING)
    return int((found or {}).get("messages_dlx") or 0)


def test_with_a_queue_named_it_says_only_of_that_one_that_nothing_is_left(vhost: Vhost) -> None:
    declared(vhost, QUORUM, jobs_dlq={"x-delivery-limit": 3})

    done = migrate(vhost, "STRICT", "--yes", "--queue", "jobs")

    assert done.returncode == 0, done.stderr
    assert "nothing is left to migrate of jobs" in done.stdout
    assert arguments_of(vhost, dlq("jobs"))["x-delivery-limit"] == 3
