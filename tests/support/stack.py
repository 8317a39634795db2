"""Our processes as an operator starts them, in one test's vhost and database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import httpx

from api.keys_cli import main as api_keys
from dev.thirdparty.client import ThirdPartyClient
from tests.support.databases import Database
from tests.support.dlq_here import command_here
from tests.support.documented import hold
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, clean_environment, console_script
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.catalogue import TOPOLOGY
from topology.cli import main as topology
from topology.entities import compile_topology

FINAL = ("SUCCEEDED", "DEAD", "CANCELLED")


@dataclass
class Stack:
    """API, workers and dead-letter consumer over real servers. Nothing runs until it is started.

    `settings` go to every process; times are shrunk (`REDRIVE_TIME_SCALE`, a short lease), names are not.
    """

    vhost: Vhost
    database: Database
    processes: Processes
    settings: dict[str, str] = field(default_factory=dict)
    api: httpx.Client | None = None
    third_party: ThirdPartyClient | None = None  # where the tests of a module share one
    api_port: int = 0  # where an API that is started again has the same address

    def __post_init__(self) -> None:
        self.settings = {
            "REDRIVE_AMQP_URL": self.vhost.amqp_url,
            "REDRIVE_MANAGEMENT_URL": self.vhost.management_url,
            "REDRIVE_DATABASE_URL": self.database.url,
            "REDRIVE_TIME_SCALE": "0.1",
            "REDRIVE_WORKER_LEASE_S": "3",
            "REDRIVE_WORKER_RENEW_S": "1",
        } | self.settings

    def command(
        self, entry_point: str, *arguments: str, timeout: float = 90, **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a console script (`module:function`) to its end."""
        return subprocess.run(
            console_script(entry_point, *arguments),
            env=clean_environment(self.settings | settings),
            cwd=self.processes.directory,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def dlq(self, *arguments: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        return self.command("dlq_consumer.cli:main", *arguments, timeout=timeout)

    def apply_topology(self) -> None:
        """`topology apply`, without a process of its own where the topology is the sample one."""
        if "REDRIVE_TOPOLOGY" in self.settings:
            done = self.command("topology.cli:main", "apply")
            assert done.returncode == 0, done.stderr
        else:
            here = command_here(topology, self.settings, self.processes.directory, "apply")
            assert here.exit_code == 0, (here.output, here.exception)

    def start_api(self, *, ready: bool = True, **settings: str) -> Process:
        """uvicorn, and `self.api` with a fresh key. Each answer has to be what the OpenAPI document says."""
        name = f"test-{token_hex(4)}"
        made = command_here(api_keys, self.settings, self.processes.directory, "create", name, "--json")
        assert made.exit_code == 0, (made.output, made.exception)
        port = self.api_port or free_port()
        arguments = (
            "api.app:app",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--no-access-log",
            "--no-server-header",
        )
        process = self.processes.start_module("api", "uvicorn", *arguments, env=self.settings | settings)
        key = json.loads(made.stdout)["key"]
        if self.api is not None:
            self.api.close()
        self.api = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=30,
            verify=False,  # plain HTTP
            event_hooks={"response": [hold]},
        )
        if ready:
            eventually(
                lambda: self.http.get("/readyz").status_code == 200,
                30,
                "the API is ready",
                ignoring=(httpx.HTTPError,),
            )
        return process

    def empty(self) -> None:
        """Once the relay is done: what it publishes then would reach the next test."""
        outbox = "select count(*) from redrive.outbox where created_at <= now()"  # but for delayed jobs
        eventually(lambda: self.database.value(outbox) == 0, 20, "the outbox is empty")
        self.vhost.purge(TOPOLOGY)
        self.database.empty()
        if self.third_party is not None:
            self.third_party.reset()

    def close(self) -> None:
        """Close the clients; whoever made `processes` ends them."""
        for client in (self.api, self.third_party):
            if client is not None:
                client.close()

    def start_worker(self, *arguments: str, concurrency: int = 2, **settings: str) -> Process:
        """`celery -A workers.app worker`, consuming when this returns."""
        name = f"w{token_hex(4)}@test"
        before = self.vhost.consumers("payments")
        process = self.processes.start(
            "worker",
            [
                sys.executable,
                "-m",
                "celery",
                "-A",
                "workers.app",
                "worker",
                "-n",
                name,
                "-c",
                str(concurrency),
                "-l",
                "INFO",
                *arguments,
            ],
            self.settings | settings,
        )
        self._until_consuming(process, "payments", before)
        return process

    def start_consumer(self, **settings: str) -> Process:
        """`dlq consume`, draining when this returns."""
        before = self.vhost.consumers("payments.dlq")
        process = self.processes.start(
            "consumer", console_script("dlq_consumer.cli:main", "consume"), self.settings | settings
        )
        self._until_consuming(process, "payments.dlq", before)
        return process

    def _until_consuming(self, process: Process, queue: str, before: int) -> None:
        def consuming() -> bool:
            if process.exit_code is not None:
                raise RuntimeError(f"{process.name} ended with {process.exit_code}:\n{process.tail()}")
            return self.vhost.consumers(queue) > before

        eventually(consuming, 40, f"{process.name} consumes {queue}")

    @property
    def http(self) -> httpx.Client:
        assert self.api is not None, "start_api first"
        return self.api

    def submit(self, type_: str, payload: Mapping[str, Any], key: str) -> str:
        """The id of the accepted job."""
        answer = self.http.post(
            "/jobs", json={"type": type_, "payload": payload}, headers={"Idempotency-Key": key}
        )
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/jobs/{job_id}").raise_for_status().json()
        return found

    def until(self, job_id: str, state: str, deadline_s: float = 30) -> dict[str, Any]:
        """The job once it is in `state`."""

        def reached() -> dict[str, Any]:
            job = self.job(job_id)
            if job["state"] != state and job["state"] in FINAL:
                raise RuntimeError(f"job {job_id} ended {job['state']}, expected {state}: {job}")
            assert job["state"] == state, job
            return job

        return eventually(reached, deadline_s, f"job {job_id} is {state}")

    def depth(self, queue: str) -> int:
        return self.vhost.depth(queue)

    def depths(self) -> dict[str, int]:
        """Every queue of the topology and its ready messages."""
        return self.vhost.depths(queue.name for queue in compile_topology(TOPOLOGY).queues)

    def publish(self, queue: str, body: bytes, properties: Any = None) -> None:
        self.vhost.publish(queue, body, properties)
