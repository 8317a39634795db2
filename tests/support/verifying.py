"""A worker and a dead-letter consumer over the queue `work`, and `topology verify` beside them."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from urllib.parse import quote

from tests.support.databases import Database
from tests.support.processes import Process, Processes, clean_environment, console_script
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from tests.support.work import DLQ, QUEUE, TIME_SCALE, Work
from tests.support.worker_jobs import TOPOLOGY
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.names import UNROUTED_DLQ
from topology.wire import install

VERIFY = "topology.cli:main"
# Steps up to 0.64 s.
WAIT_S = "0.7"


class Verifying(Work):
    """As `Work`. `break_…` what you like: `empty` mends it."""

    def __init__(self, vhost: Vhost, database: Database, processes: Processes) -> None:
        settings = {"REDRIVE_MANAGEMENT_URL": vhost.management_url}
        super().__init__(vhost, database, processes, settings)
        install()
        self._place = quote(vhost.vhost, safe="")

    def start_both(self) -> None:
        self.start()
        self.start_drainer()

    def start_drainer(self) -> Process:
        script = console_script("dlq_consumer.cli:main", "consume")
        process = self.processes.start("consumer", script, self.settings)
        for queue in (DLQ, UNROUTED_DLQ):
            process.wait_for_log(f"draining {queue}")
        return process

    def verify(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            console_script(VERIFY, "verify", "--wait", WAIT_S, *arguments),
            env=clean_environment(self.settings | settings),
            cwd=self.processes.directory,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def checks(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """The checks by their path."""
        done = self.verify("--format", "json", *arguments)
        assert done.stderr == "", done.stderr
        found = [json.loads(line) for line in done.stdout.splitlines()]
        expected = 1 if any(check["status"] == "failed" for check in found) else 0
        assert done.returncode == expected, done.stdout
        return {check["path"]: check for check in found}

    def failures(self) -> dict[str, str]:
        """Path and reason with fix of what failed, the broker's and the probes'."""
        return {
            path: f"{check['reason']}. {check['fix']}"
            for path, check in self.checks().items()
            if check["status"] == "failed"
        }

    def unbind(self, source: str, destination: str, key: str, kind: str = "q") -> None:
        path = f"/api/bindings/{self._place}/e/{source}/{kind}/{destination}/{quote(key, safe='')}"
        self.vhost.management.delete(path).raise_for_status()

    def delete(self, kind: str, name: str) -> None:
        self.vhost.management.delete(f"/api/{kind}/{self._place}/{name}").raise_for_status()

    def policy(self, name: str, pattern: str, *, kind: str = "policies", **definition: Any) -> None:
        """Set it, and wait until the broker says that it is in force (its statistics lag by 5 s)."""
        keys = {key.replace("_", "-"): value for key, value in definition.items()}
        body = {"pattern": pattern, "definition": keys, "apply-to": "queues", "priority": 1}
        self.vhost.management.put(f"/api/{kind}/{self._place}/{name}", json=body).raise_for_status()
        field = "policy" if kind == "policies" else "operator_policy"
        self._until_said(field, name)

    def _until_said(self, field: str, name: str | None) -> None:
        """That it is in force somewhere; with None, that none is anywhere."""

        def said() -> bool:
            answer = self.vhost.management.get(
                f"/api/queues/{self._place}", params={"columns": f"name,{field}"}
            )
            found = {queue.get(field) or None for queue in answer.json()}
            return found == {None} if name is None else name in found

        eventually(said, 20, f"{field} {name} is in force", every_s=0.3)

    def rows(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for table in self.tables():
            counts[table] = int(self.database.value(f'select count(*) from redrive."{table}"'))
        return counts

    def tables(self) -> list[str]:
        found = self.database.fetch("select tablename from pg_tables where schemaname = 'redrive' order by 1")
        return [row["tablename"] for row in found]

    def messages(self) -> dict[str, int]:
        """Every queue that holds a ready message, but those of one connection."""
        answer = self.vhost.management.get(f"/api/queues/{self._place}", params={"columns": "name,exclusive"})
        depths = self.vhost.depths(queue["name"] for queue in answer.json() if not queue["exclusive"])
        return {name: depth for name, depth in depths.items() if depth}

    def empty(self) -> None:
        for kind in ("policies", "operator-policies"):
            for found in self.vhost.management.get(f"/api/{kind}/{self._place}").json():
                self.delete(kind, found["name"])
        for field in ("policy", "operator_policy"):
            self._until_said(field, None)
        apply(AmqpAddress.parse(self.vhost.amqp_url), compile_topology(TOPOLOGY, TIME_SCALE))
        eventually(self._consumed, 30, "worker and dead-letter consumer are back")
        super().empty()

    def _consumed(self) -> bool:
        return all(self.vhost.consumers(queue) for queue in (QUEUE, DLQ, UNROUTED_DLQ))
