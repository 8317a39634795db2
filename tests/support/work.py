"""A worker over the queue `work` with what a test needs around it."""

from __future__ import annotations

import importlib
import json
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.processes import Process, Processes
from tests.support.shared import Places, Shared
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.headers import Attempt
from topology.messages import task_message
from topology.spec import Topology
from topology.wire import RawProperties, install

TIME_SCALE = 0.2
QUEUE, DLQ = "work", "work.dlq"
APP = "tests.support.worker_jobs"


@dataclass
class Work:
    """One vhost with the queue `work`, one database, and workers that the test starts.

    `module` holds the app and its `TOPOLOGY`.
    """

    vhost: Vhost
    database: Database
    processes: Processes
    settings: dict[str, str] = field(default_factory=dict)
    module: str = APP

    def __post_init__(self) -> None:
        self.apply()
        self.settings = {
            "REDRIVE_AMQP_URL": self.vhost.amqp_url,
            "REDRIVE_DATABASE_URL": self.database.url,
            "REDRIVE_TOPOLOGY": f"{self.module}:TOPOLOGY",
            "REDRIVE_TIME_SCALE": str(TIME_SCALE),
            "REDRIVE_WORKER_LEASE_S": "3",
            "REDRIVE_WORKER_RENEW_S": "1",
        } | self.settings

    @property
    def topology(self) -> Topology:
        found: Topology = importlib.import_module(self.module).TOPOLOGY
        return found

    def apply(self) -> None:
        """Declare the topology, or what is missing of it."""
        apply(AmqpAddress.parse(self.vhost.amqp_url), compile_topology(self.topology, TIME_SCALE))

    def empty(self) -> None:
        self.vhost.purge(self.topology)
        self.database.empty()

    def close(self) -> None:
        """Nothing of its own is open."""

    def start(
        self, *arguments: str, concurrency: int = 2, app: str = "", ready: bool = True, **settings: str
    ) -> Process:
        """`celery -A … worker`; consuming when this returns, unless told otherwise."""
        name = f"w{uuid.uuid4().hex[:6]}@test"
        argv = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            app or self.module,
            "worker",
            "-n",
            name,
            "-c",
            str(concurrency),
        ]
        process = self.processes.start("worker", [*argv, "-l", "INFO", *arguments], self.settings | settings)
        if ready:
            process.wait_for_log("ready.", 40)
        return process

    def submit(self, task: str, job_id: str | None = None, *, row: bool = True, **kwargs: Any) -> str:
        """A job as the API leaves it: a row, and a message."""
        job_id = job_id or str(uuid.uuid4())
        if row:
            self.database.execute(
                "insert into redrive.jobs (id, type, queue, state) values ($1, $2, $3, 'QUEUED')",
                job_id, task, QUEUE,
            )  # fmt: skip
        self.send(task, job_id, **kwargs)
        return job_id

    def send(self, task: str, job_id: str, attempt: Attempt | None = None, **kwargs: Any) -> None:
        message = task_message(job_id, task, kwargs, attempt=attempt)
        self.publish(message.body, RawProperties(message.properties))

    def publish(self, body: bytes, properties: Any = None) -> None:
        """Straight to the queue, as any program may."""
        self.vhost.publish(QUEUE, body, properties)

    def job(self, job_id: str) -> dict[str, Any]:
        rows = self.database.fetch("select * from redrive.jobs where id = $1", job_id)
        return rows[0] if rows else {"state": None}

    def attempts(self, job_id: str) -> list[dict[str, Any]]:
        return self.database.fetch(
            "select * from redrive.attempts where job_id = $1 order by generation, attempt", job_id
        )

    def until(self, job_id: str, state: str, deadline_s: float = 30) -> dict[str, Any]:
        """The job's row once it is in `state`."""

        def reached() -> dict[str, Any]:
            job = self.job(job_id)
            assert job["state"] == state, job
            return job

        return eventually(reached, deadline_s, f"job {job_id} is {state}")

    def result(self, job_id: str) -> Any:
        return json.loads(self.until(job_id, "SUCCEEDED")["result"])

    def depth(self, queue: str) -> int:
        return self.vhost.depth(queue)

    def letters(self) -> list[tuple[RawProperties, bytes]]:
        """Everything in the dead-letter queue, taken off it."""
        install()  # pika cannot parse every letter
        taken: list[tuple[RawProperties, bytes]] = []
        with self.vhost.channel() as channel:
            while True:
                method, properties, body = channel.basic_get(DLQ, auto_ack=True)
                if method is None:
                    return taken
                taken.append((properties, body))

    def until_letters(self, count: int, deadline_s: float = 20) -> list[tuple[RawProperties, bytes]]:
        """The dead letters, once there are `count`."""
        letters: list[tuple[RawProperties, bytes]] = []

        def there() -> bool:
            letters.extend(self.letters())
            return len(letters) >= count

        eventually(there, deadline_s, f"{count} dead letters")
        assert len(letters) == count, letters
        return letters

    def until_settled(self, deadline_s: float = 20) -> None:
        """Nothing is ready or unacknowledged in the work queue. The management API is up to 5 s late."""

        def settled() -> bool:
            state = self.vhost.queue(QUEUE) or {}
            return state.get("messages", 1) == 0 and self.depth(QUEUE) == 0

        eventually(settled, deadline_s, "the work queue is settled")

    def effects(self) -> int:
        """How many effects of `t.mark` and the like there are."""
        return int(self.database.value("select count(*) from redrive.sample_emails"))


@contextmanager
def shared_work(places: Places, *arguments: str, module: str = APP, **options: Any) -> Iterator[Shared[Work]]:
    """For a fixture of scope `module`: a worker started with `arguments` and `options`, see `Work.start`."""

    def make(vhost: Vhost, database: Database, processes: Processes) -> Work:
        work = Work(vhost, database, processes, module=module)
        work.start(*arguments, **options)
        return work

    with places.shared(make) as shared:
        yield shared


def runs(path: Path) -> Counter[str]:
    """How often each job wrote a line that begins with its id."""
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


@pytest.fixture
def worker(work: Work) -> Iterator[Process]:
    """The one worker of `work`, which must outlive the test."""
    (process,) = work.processes.started
    yield process
    assert process.exit_code is None, "the worker has ended"
