"""A worker with the tasks of `tests.support.canvas_jobs`, and a client process' app to send canvases with."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from celery import Signature, signals

from storage.settings import StorageSettings
from tests.support.databases import Database
from tests.support.processes import Process, Processes, clean_environment, console_script
from tests.support.shared import Places, Shared
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import TIME_SCALE, Work
from tests.support.worker_jobs import TOPOLOGY
from topology.settings import TopologySettings
from workers.celery_app import Redrive
from workers.settings import Environment, WorkerSettings

APP = "tests.support.canvas_jobs"


class Canvas(Work):
    """`Work`, with `client`: an app that knows the tasks by name only."""

    client: Redrive

    @classmethod
    def make(cls, vhost: Vhost, database: Database, processes: Processes) -> Canvas:
        canvas = cls(vhost, database, processes)
        canvas.client = client_of(vhost, database)
        return canvas

    def close(self) -> None:
        self.client.backend.close()
        self.client.pool.force_close_all()
        self.client.close()

    def start_consumer(self) -> Process:
        """`dlq consume`, draining when this returns."""
        command = console_script("dlq_consumer.cli:main", "consume")
        process = self.processes.start("consumer", command, self._with_management)
        process.wait_for_log("draining work.dlq", 40)
        return process

    def dlq(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            console_script("dlq_consumer.cli:main", *arguments),
            env=clean_environment(self._with_management), cwd=self.processes.directory,
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip

    def replay(self, job_id: str) -> None:
        """By the command, to its outcome: the job has succeeded."""

        done = self.dlq("replay", str(self.letter(job_id)))
        assert done.returncode == 0, done.stdout + done.stderr

    def letter(self, job_id: str) -> int:
        """The open letter of a job."""

        def stored() -> int | None:
            rows = self.database.fetch(
                "select id from redrive.dead_letters where job_id = $1 and state = 'open'", job_id
            )
            return int(rows[0]["id"]) if rows else None

        found = eventually(stored, 40, f"the letter of {job_id}")
        assert found is not None
        return found

    @contextmanager
    def spoiled(self, job_id: str) -> Iterator[None]:
        """Inside, the message of one job goes out with a body that is no JSON."""

        def spoil(sender: Any = None, headers: Any = None, properties: Any = None, **_: Any) -> None:
            if headers["id"] == job_id:
                headers["compression"] = "no such method"

        signals.before_task_publish.connect(spoil, weak=False)
        try:
            yield
        finally:
            signals.before_task_publish.disconnect(spoil)

    @property
    def _with_management(self) -> dict[str, str]:
        return self.settings | {"REDRIVE_MANAGEMENT_URL": self.vhost.management_url}

    def task(self, name: str, *args: Any, **options: Any) -> Signature:
        """A signature of the client's; `immutable=True` takes nothing from the task before it."""
        return self.client.signature(f"c.{name}", args=args, **options)

    def state(self, job_id: str) -> str:
        """As a client sees it, asked anew."""
        return str(self.client.AsyncResult(job_id).state)

    def until_state(self, job_id: str, state: str, deadline_s: float = 40) -> None:
        eventually(lambda: self.state(job_id) == state, deadline_s, f"{job_id} is {state}")

    def jobs_of(self, task: str) -> list[dict[str, Any]]:
        return self.database.fetch(
            "select id, state, generation, attempt, result from redrive.jobs where type = $1"
            " order by created_at, id",
            f"c.{task}" if "." not in task else task,
        )

    def until_jobs(self, task: str, count: int, state: str = "SUCCEEDED") -> list[dict[str, Any]]:
        """All jobs of a task, once there are `count` and each is in `state`."""

        def there() -> list[dict[str, Any]]:
            found = self.jobs_of(task)
            assert [job["state"] for job in found] == [state] * count, found
            return found

        return eventually(there, 40, f"{count} jobs of {task} are {state}")

    def until_quiet(self) -> None:
        """No job runs or waits, and the work queue is empty: what was to follow has followed."""
        open_jobs = (
            "select count(*) from redrive.jobs where state in ('PENDING', 'QUEUED', 'RUNNING', 'RETRYING')"
        )
        untold = "select count(*) from redrive.canvas_letters"

        def quiet() -> bool:
            return (
                self.depth("work") == 0
                and self.database.value(open_jobs) == 0
                and self.database.value(untold) == 0
            )

        eventually(quiet, 40, "everything has ended")
        self.until_settled()

    def path(self, name: str) -> str:
        return str(Path(self.processes.directory) / name)


def shared_canvas(places: Places, *, consumer: bool = False) -> AbstractContextManager[Shared[Canvas]]:
    """A worker, and `dlq consume` if wanted, for the tests of a module."""

    def make(vhost: Vhost, database: Database, processes: Processes) -> Canvas:
        canvas = Canvas.make(vhost, database, processes)
        canvas.start(app=APP)
        if consumer:
            canvas.start_consumer()
        return canvas

    return places.shared(make)


def client_of(vhost: Vhost, database: Database, **conf: Any) -> Redrive:
    """An app with Celery's settings `conf`."""
    environment = Environment(
        TopologySettings(_env_file=None, amqp_url=vhost.amqp_url, time_scale=TIME_SCALE),  # type: ignore[call-arg, arg-type]
        StorageSettings(_env_file=None, database_url=database.url),  # type: ignore[call-arg, arg-type]
        WorkerSettings(_env_file=None),  # type: ignore[call-arg]
        TOPOLOGY,
    )
    app = Redrive("client", environment=environment, set_as_current=False)
    app.conf.update(conf)
    return app
