"""A dead-letter consumer over a small topology, and what is needed to make letters for it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import asyncpg
from click.testing import Result
from pika.adapters.blocking_connection import BlockingChannel

from tests.support import background
from tests.support.databases import Database
from tests.support.dlq_here import dlq_here
from tests.support.processes import Process, Processes, clean_environment, console_script
from tests.support.shared import Places, Shared
from tests.support.small_topology import TOPOLOGY
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.headers import Attempt
from topology.messages import Message, task_message
from topology.wire import Properties, RawProperties, install, properties, split

DLQ = "dlq_consumer.cli:main"
G = TypeVar("G", bound="Graveyard")


@dataclass
class Graveyard:
    """The small topology is declared; nothing runs until `start`."""

    vhost: Vhost
    database: Database
    processes: Processes
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        install()
        self.address = AmqpAddress.parse(self.vhost.amqp_url)
        apply(self.address, compile_topology(TOPOLOGY, 0.1))
        self.settings = {
            "REDRIVE_AMQP_URL": self.vhost.amqp_url,
            "REDRIVE_MANAGEMENT_URL": self.vhost.management_url,
            "REDRIVE_DATABASE_URL": self.database.url,
            "REDRIVE_TOPOLOGY": "tests.support.small_topology:TOPOLOGY",
            "REDRIVE_ALERT_ALLOW": "127.0.0.1",  # receivers of tests
        } | self.settings

    def start(self, *, ready: bool = True, **settings: str) -> Process:
        """`dlq consume`, draining `orders.dlq` when this returns."""
        process = self.processes.start("consumer", console_script(DLQ, "consume"), self.settings | settings)
        if ready:
            process.wait_for_log("draining orders.dlq")
        return process

    def empty(self) -> None:
        """For tests that share it: no message and no row is left."""
        with self.vhost.channel() as channel:
            for queue in ("orders", "mails", "orders.dlq", "mails.dlq"):
                channel.queue_purge(queue)
        self.database.empty()

    def close(self) -> None:
        """Nothing of its own."""

    def dlq(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            console_script(DLQ, *arguments),
            env=clean_environment(self.settings),
            cwd=self.processes.directory,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def dlq_here(self, *arguments: str, typed: str | None = None) -> Result:
        """The same command without a process of its own, where the test is about what it prints."""
        return dlq_here(self.settings, self.processes.directory, *arguments, typed=typed)

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        """`dlq list --json`."""
        done = self.dlq_here("list", "--json", *arguments)
        assert done.exit_code == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def shown(self, letter_id: int) -> dict[str, Any]:
        """`dlq show ID --json`."""
        done = self.dlq_here("show", str(letter_id), "--json")
        assert done.exit_code == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def group(self, *arguments: str) -> dict[str, Any]:
        """`dlq group FINGERPRINT --json`, with whatever else."""
        done = self.dlq_here("group", *arguments, "--json")
        assert done.exit_code == 0, done.output
        shown: dict[str, Any] = json.loads(done.stdout)
        return shown

    def publish(self, queue: str, *messages: Message, exchange: str = "") -> None:
        """Confirmed, straight to a queue."""
        with self.vhost.channel() as channel:
            channel.confirm_delivery()
            for message in messages:
                properties = cast(Any, RawProperties(message.properties))
                channel.basic_publish(exchange, queue, message.body, properties, mandatory=True)

    def reject(self, queue: str, count: int = 1) -> None:
        """Take `count` messages off a work queue and dead-letter them, as a worker does."""
        with self.vhost.channel() as channel:
            for _ in range(count):
                channel.basic_reject(self._next(channel, queue), requeue=False)

    def bury(self, queue: str, message: Message) -> None:
        """Publish and dead-letter one message."""
        self.publish(queue, message)
        self.reject(queue)

    def _next(self, channel: BlockingChannel, queue: str) -> int:
        def get() -> int | None:
            method, _, _ = channel.basic_get(queue)
            return None if method is None else int(method.delivery_tag)

        return cast(int, eventually(get, 10, f"a message in {queue}"))

    def take(self, queue: str) -> tuple[Properties, bytes, bytes]:
        """One message off a queue: properties taken apart, raw, and the body."""
        with self.vhost.channel() as channel:

            def get() -> tuple[Any, Any, Any] | None:
                found = channel.basic_get(queue, auto_ack=True)
                return None if found[0] is None else found

            _, raw, body = cast(tuple[Any, Any, Any], eventually(get, 10, f"a message in {queue}"))
            return split(raw.raw), raw.raw, body

    def take_all(self, queue: str, count: int) -> list[tuple[bytes, bytes]]:
        """`count` messages off a queue, at least: raw properties and body, as the broker delivers them."""
        found: list[tuple[bytes, bytes]] = []
        with self.vhost.channel() as channel:

            def all_there() -> bool:
                while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                    found.append((cast(Any, got[1]).raw, cast(bytes, got[2])))
                return len(found) >= count

            eventually(all_there, 60, f"{count} messages in {queue}")
        return found

    def depth(self, queue: str) -> int:
        return self.vhost.depth(queue)

    def letters(self) -> list[dict[str, Any]]:
        """The test's own look at the table, oldest first."""
        return self.database.fetch("select * from redrive.dead_letters order by id")

    def until_stored(self, count: int, deadline_s: float = 20) -> list[dict[str, Any]]:
        """The letters, once there are `count` and the dead-letter queue is empty."""

        def all_there() -> list[dict[str, Any]]:
            found = self.letters()
            assert len(found) == count, [(row["id"], row["reason"], row["dlq"]) for row in found]
            return found

        return eventually(all_there, deadline_s, f"{count} letters are stored")

    def job(self, job_id: str, state: str, **columns: Any) -> None:
        """A row as a worker leaves it."""
        values = {"id": job_id, "type": "orders.place", "queue": "orders", "state": state} | columns
        names = ", ".join(values)
        marks = ", ".join(f"${number}" for number in range(1, len(values) + 1))
        self.database.execute(f"insert into redrive.jobs ({names}) values ({marks})", *values.values())

    def failed_job(self, job_id: str, traceback: str, *, generation: int = 1) -> None:
        """A job whose first attempt raised: recorded DEAD, its message not yet rejected."""
        self.job(job_id, "DEAD", generation=generation, reason="exception", error="ValueError: no")
        self.database.execute(
            "insert into redrive.attempts (job_id, generation, attempt, claim, worker, outcome, reason,"
            " exception_type, message, traceback, ended_at)"
            " values ($1, $2, 1, gen_random_uuid(), 'w', 'failed', 'exception', 'ValueError', 'no', $3,"
            " now())",
            job_id,
            generation,
            traceback,
        )

    @contextmanager
    def holding(self, lock: int) -> Iterator[None]:
        """An advisory lock of the test's own."""
        connection = background.run(asyncpg.connect(self.database.url, timeout=10))
        try:
            background.run(connection.execute("select pg_advisory_lock($1)", lock))
            yield
        finally:
            background.run(connection.close())

    def waits_for(self, lock: int) -> bool:
        """Whether something waits for an advisory lock."""
        sql = (
            "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = $1"
            " and database = (select oid from pg_database where datname = current_database())"
        )
        return int(self.database.value(sql, lock)) > 0

    def job_row(self, job_id: str) -> dict[str, Any]:
        return self.database.fetch("select * from redrive.jobs where id = $1", job_id)[0]


def order(job_id: str, attempt: Attempt | None = None) -> Message:
    """The message of a job `orders.place`."""
    return task_message(job_id, "orders.place", {"order": "1"}, attempt=attempt)


def plain(body: bytes = b"hello", **values: Any) -> Message:
    """A message that has nothing to do with Celery."""
    return Message(properties(**values).encode(), body)


@contextmanager
def shared_graveyard(places: Places, kind: type[G]) -> Iterator[Shared[G]]:
    """For a fixture of scope `module`: a consumer that drains when the first test gets it."""

    def make(*place: Any) -> G:
        graveyard = kind(*place)
        graveyard.start().wait_for_log("draining mails.dlq")
        return graveyard

    with places.shared(make) as made:
        yield made
