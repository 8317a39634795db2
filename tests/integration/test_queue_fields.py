"""Every field of a work queue does on a broker what the spec says of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.databases import Database
from tests.support.field_jobs import PATIENT, TOPOLOGY
from tests.support.policies import put_policies, put_policy
from tests.support.processes import Process, Processes, console_script
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.messages import task_message
from topology.wire import RawProperties

TIME_SCALE = 0.2
MODULE = "tests.support.field_jobs"


@dataclass
class Place:
    """The topology with its policies; a database; what is started is started by the test."""

    vhost: Vhost
    database: Database
    processes: Processes
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        entities = compile_topology(TOPOLOGY, TIME_SCALE)
        apply(AmqpAddress.parse(self.vhost.amqp_url), entities)
        put_policies(self.vhost, entities)
        self.settings = {
            "REDRIVE_AMQP_URL": self.vhost.amqp_url,
            "REDRIVE_MANAGEMENT_URL": self.vhost.management_url,
            "REDRIVE_DATABASE_URL": self.database.url,
            "REDRIVE_TOPOLOGY": f"{MODULE}:TOPOLOGY",
            "REDRIVE_TIME_SCALE": str(TIME_SCALE),
        }

    def worker(self, *queues: str) -> Process:
        argv = [sys.executable, "-m", "celery", "-A", MODULE, "worker", "-c", "1", "-l", "INFO"]
        process = self.processes.start("worker", [*argv, "-Q", ",".join(queues)], self.settings)
        process.wait_for_log("ready.", 40)
        return process

    def drainer(self) -> Process:
        process = self.processes.start(
            "consumer", console_script("dlq_consumer.cli:main", "consume"), self.settings
        )
        process.wait_for_log("draining old.dlq")
        return process

    def submit(self, queue: str, task: str, **kwargs: Any) -> str:
        """A row, and a message, as the API leaves them."""
        job = str(uuid4())
        self.database.execute(
            "insert into redrive.jobs (id, type, queue, state) values ($1, $2, $3, 'QUEUED')",
            job, f"{queue}.{task}", queue,
        )  # fmt: skip
        message = task_message(job, f"{queue}.{task}", kwargs)
        self.vhost.publish(queue, message.body, RawProperties(message.properties))
        return job

    def publish(self, script: str) -> None:
        """By Celery's own means, in a process of its own."""
        done = self.processes.start(
            "publisher", [sys.executable, "-c", f"from {MODULE} import app\n{script}"], self.settings
        )
        assert done.wait(30) == 0, done.tail()

    def until(self, job: str, state: str) -> dict[str, Any]:
        def reached() -> dict[str, Any]:
            rows = self.database.fetch("select * from redrive.jobs where id = $1", job)
            assert rows, "no row yet"
            assert rows[0]["state"] == state, rows[0]
            return rows[0]

        return eventually(reached, 30, f"job {job} is {state}")

    def runs(self) -> list[str]:
        """The jobs of all attempts, in the order in which they ended: claims of several are made at once."""
        rows = self.database.fetch("select job_id from redrive.attempts order by ended_at")
        return [row["job_id"] for row in rows]


@pytest.fixture
def place(vhost: Vhost, database: Database, processes: Processes) -> Place:
    return Place(vhost, database, processes)


EXPIRING = pytest.mark.parametrize("queue", ["fresh", "old"])


@EXPIRING
def test_a_job_that_waits_too_long_without_a_worker_is_a_letter_and_dead(place: Place, queue: str) -> None:
    job = place.submit(queue, "sleeps")
    place.drainer()

    assert place.until(job, "DEAD")["reason"] == "expired"
    (letter,) = place.database.fetch("select * from redrive.dead_letters")
    assert (letter["job_id"], letter["queue"], letter["reason"]) == (job, queue, "expired")
    assert place.vhost.depths([queue, f"{queue}.dlq"]) == {queue: 0, f"{queue}.dlq": 0}


@EXPIRING
def test_a_job_that_waits_too_long_behind_another_is_dead_and_never_run(place: Place, queue: str) -> None:
    place.worker(queue)
    place.drainer()
    long = place.submit(queue, "sleeps", seconds=4)
    eventually(lambda: place.vhost.depth(queue) == 0, 10, "the first job is with the worker")
    late = place.submit(queue, "sleeps")

    assert place.until(late, "DEAD")["reason"] == "expired"
    place.until(long, "SUCCEEDED")
    after = place.submit(queue, "sleeps")
    place.until(after, "SUCCEEDED")
    assert place.runs() == [long, after]


def test_the_priority_of_a_celery_publisher_is_honoured(place: Place) -> None:
    place.publish(
        "for number in range(3):\n"
        "    app.send_task('ranked.sleeps', (0.1,), task_id=f'low-{number}', priority=0)\n"
        "app.send_task('ranked.sleeps', (0.1,), task_id='high', priority=5)\n"
        "app.send_task('ranked.sleeps', (0.1,), task_id='middle', priority=3)"
    )
    place.worker("ranked")
    place.until("low-2", "SUCCEEDED")
    assert place.runs() == ["high", "middle", "low-0", "low-1", "low-2"]


def test_a_retry_comes_back_with_its_priority(place: Place) -> None:
    place.publish(
        "app.send_task('ranked.flaky', task_id='high', priority=5)\n"
        "for number in range(6):\n"
        "    app.send_task('ranked.sleeps', (0.4,), task_id=f'low-{number}', priority=0)"
    )
    place.worker("ranked")
    place.until("low-5", "SUCCEEDED")
    runs = place.runs()
    assert runs[0] == "high"
    assert "high" in runs[1:4], runs


def test_retries_of_all_queues_that_share_a_ladder_come_back_to_their_own(place: Place) -> None:
    place.worker("fresh", "ranked", "alone")
    jobs = {queue: place.submit(queue, "flaky") for queue in ("fresh", "ranked", "alone")}
    for queue, job in jobs.items():
        assert place.until(job, "SUCCEEDED")["queue"] == queue
        attempts = place.database.fetch(
            "select outcome from redrive.attempts where job_id = $1 order by attempt", job
        )
        assert [attempt["outcome"] for attempt in attempts] == ["retry", "succeeded"]
    dlqs = ["fresh.dlq", "ranked.dlq", "alone.dlq", "redrive.unrouted.dlq"]
    assert place.vhost.depths(dlqs) == dict.fromkeys(dlqs, 0)


def test_a_single_active_consumer_gets_everything_until_it_is_gone(vhost: Vhost) -> None:
    apply(AmqpAddress.parse(vhost.amqp_url), compile_topology(TOPOLOGY, TIME_SCALE))
    seen: list[str] = []

    def noting(name: str) -> Callable[..., None]:
        def note(channel: BlockingChannel, method: Any, _properties: Any, _body: bytes) -> None:
            seen.append(name)
            channel.basic_ack(method.delivery_tag)

        return note

    with vhost.channel() as first, vhost.channel() as second:
        tag = first.basic_consume("alone", noting("first"))
        second.basic_consume("alone", noting("second"))

        def delivered(count: int) -> bool:
            for channel in (first, second):
                channel.connection.process_data_events(0.05)
            return len(seen) == count

        for number in range(4):
            vhost.publish("alone", str(number).encode())
        eventually(lambda: delivered(4), 10, "four deliveries")
        first.basic_cancel(tag)
        vhost.publish("alone", b"4")
        eventually(lambda: delivered(5), 10, "the fifth delivery")

    assert seen == ["first"] * 4 + ["second"]


def test_a_consumer_timeout_is_in_force_where_the_broker_knows_it(
    vhost: Vhost, broker_release: tuple[int, int]
) -> None:
    entities = compile_topology(PATIENT, TIME_SCALE)
    apply(AmqpAddress.parse(vhost.amqp_url), entities)
    (policy,) = entities.policies
    answer = put_policy(vhost, policy)
    if broker_release < (3, 12):
        assert answer.status_code == 400, "RabbitMQ takes this policy key from 3.12"
        return
    answer.raise_for_status()

    def in_force() -> bool:
        queue = vhost.queue("patient") or {}
        return bool(queue.get("effective_policy_definition") == {"consumer-timeout": 7_200_000})

    eventually(in_force, 15, "the policy is effective")
