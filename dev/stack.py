"""Redrive's own processes over a broker and a database, as an operator starts them."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from dev.errors import DevError
from dev.ports import free_ports
from dev.processes import Child, spawn, tail
from dev.runs import Run
from dev.servers import ServerUrls
from dev.waiting import NotYet, Say, wait_for
from topology import names
from topology.address import AmqpAddress
from topology.catalogue import TOPOLOGY
from topology.depths import counts
from topology.errors import TopologyError
from topology.spec import Topology

HOST = "127.0.0.1"
_READY_S = 60.0
_COMMAND_S = 120.0
_CONCURRENCY = 2


class CommandFailed(DevError):
    """A command of ours ended with another exit code than 0; the message has its output."""


class ProcessDied(DevError):
    """A process ended by itself; the message has the end of its log."""


@dataclass
class Stack:
    """The processes of one run. `settings` are the REDRIVE_ variables that each of them gets."""

    run: Run
    urls: ServerUrls
    cwd: Path  # where `.env` is looked for
    say: Say
    settings: dict[str, str]
    topology: Topology = TOPOLOGY
    third_party_url: str = ""  # of the stub that this stack runs; empty: somebody else's is used
    sink_url: str = ""
    children: list[Child] = field(default_factory=list)
    workers_started: int = 0
    api_url: str = ""
    api_key: str = ""

    @classmethod
    def over(
        cls,
        run: Run,
        urls: ServerUrls,
        cwd: Path,
        say: Say,
        given: Mapping[str, str],
        topology: Topology = TOPOLOGY,
    ) -> Stack:
        """Nothing runs yet. What `given` does not name, the stack provides: a third party, a webhook sink."""
        api, third_party, sink = (f"http://{HOST}:{port}" for port in free_ports(3, run.purpose))
        settings = dict(given) | {
            "REDRIVE_AMQP_URL": urls.amqp,
            "REDRIVE_MANAGEMENT_URL": urls.management,
            "REDRIVE_DATABASE_URL": urls.database,
            # Here to be looked at, and on loopback alone.
            "REDRIVE_API_DOCS": "true",
        }
        stack = cls(run, urls, cwd, say, settings, topology, api_url=api)
        if not settings.get("REDRIVE_THIRD_PARTY_URL"):
            stack.third_party_url = settings["REDRIVE_THIRD_PARTY_URL"] = third_party
        if not settings.get("REDRIVE_ALERT_WEBHOOK_URL"):
            stack.sink_url = sink
            settings["REDRIVE_ALERT_WEBHOOK_URL"] = f"{sink}/alerts"
            settings["REDRIVE_ALERT_WEBHOOK_SECRET"] = secrets.token_hex(16)
            allowed = (settings.get("REDRIVE_ALERT_ALLOW"), HOST)
            settings["REDRIVE_ALERT_ALLOW"] = ",".join(filter(None, allowed))
            if not settings.get("REDRIVE_CALLBACK_SECRET"):
                settings["REDRIVE_CALLBACK_SECRET"] = settings["REDRIVE_ALERT_WEBHOOK_SECRET"]
                settings["REDRIVE_CALLBACK_ALLOW"] = HOST
        return stack

    def set_up(self, key_name: str) -> None:
        """Migrations, the topology, a key for the API. Raises CommandFailed."""
        for command, what in (("storage", "migrate"), ("topology", "apply")):
            self.say(f"{command} {what}: {self.command(command, what).stdout.strip().splitlines()[-1]}")
        self.api_key = json.loads(self.command("api-keys", "create", key_name, "--json").stdout)["key"]

    def start(self) -> None:
        """The stubs, the API, one worker and the dead-letter consumer; returns when each is ready."""
        self.say("starting the API, a worker, the dead-letter consumer and the stubs they call")
        if self.third_party_url:
            self._spawn_module("third-party", "dev.thirdparty", self.third_party_url)
        if self.sink_url:
            self._spawn_module("sink", "dev.sink", self.sink_url)
        port = str(httpx.URL(self.api_url).port)
        api = ("api.app:app", "--host", HOST, "--port", port, "--no-server-header")
        self._spawn("api", script("uvicorn"), *api)
        worker = self._spawn_worker()
        consumer = self._spawn("dlq-consumer", script("dlq"), "consume")
        if self.third_party_url:
            self._until_answering("the third party", f"{self.third_party_url}/_control/health")
        if self.sink_url:
            self._until_answering("the webhook sink", f"{self.sink_url}/_received")
        self._until_answering("the API", f"{self.api_url}/readyz")
        self._until_consuming(worker, self._work_queues(), 1)
        self._until_consuming(consumer, names.dead_letter_queues(self.topology), 1)

    def start_worker(self) -> Child:
        """One more worker, consuming when this returns."""
        present = sum(child.name.startswith("worker") for child in self.children)
        worker = self._spawn_worker()
        self._until_consuming(worker, self._work_queues(), present + 1)
        return worker

    def child(self, name: str) -> Child:
        return next(child for child in self.children if child.name == name)

    def kill(self, child: Child) -> None:
        """SIGKILL to a process and all that it started, as the kernel does to a container out of memory."""
        self.children.remove(child)
        child.kill()

    def stop(self, *some: Child) -> None:
        """Ends these, or all, as an operator does: SIGTERM, a grace, SIGKILL."""
        ending = list(some) or list(self.children)
        self.children = [child for child in self.children if child not in ending]
        if ending:
            with ThreadPoolExecutor(len(ending)) as threads:
                list(threads.map(Child.stop, ending))

    def check_alive(self) -> None:
        """Raises ProcessDied when one of the processes has ended."""
        for child in self.children:
            if (code := child.exit_code()) is not None:
                raise ProcessDied(
                    f"{child.name} ended with {code}. The end of its log ({child.log}):\n{tail(child.log)}"
                )

    def command(
        self, name: str, *arguments: str, allowed: tuple[int, ...] = (0,)
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of the project's commands. Raises CommandFailed for exit codes other than `allowed`."""
        done = subprocess.run(
            [script(name), *arguments],
            env=self.environment(),
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
        )
        if done.returncode not in allowed:
            raise CommandFailed(
                f"{name} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done

    def environment(self) -> dict[str, str]:
        """Ours without any other REDRIVE_ setting; no proxy is asked for loopback."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
        direct = ",".join(filter(None, (kept.get("NO_PROXY") or kept.get("no_proxy"), HOST, "localhost")))
        return kept | {"NO_PROXY": direct, "no_proxy": direct, "PYTHONUNBUFFERED": "1"} | self.settings

    def _spawn(self, name: str, *argv: str) -> Child:
        child = spawn(self.run, name, argv, env=self.environment(), cwd=self.cwd)
        self.children.append(child)
        return child

    def _spawn_module(self, name: str, module: str, url: str) -> None:
        self._spawn(name, sys.executable, "-m", module, "--port", str(httpx.URL(url).port))

    def _work_queues(self) -> tuple[str, ...]:
        return tuple(queue.name for queue in self.topology.queues)

    def _spawn_worker(self) -> Child:
        self.workers_started += 1
        name = f"worker-{self.workers_started}"
        arguments = ("-A", "workers.app", "worker", "--hostname", f"{name}@redrive", "--loglevel", "INFO")
        return self._spawn(name, script("celery"), *arguments, "--concurrency", str(_CONCURRENCY))

    def _until_answering(self, what: str, url: str) -> None:
        def ask() -> None:
            try:
                answer = httpx.get(url, timeout=5, trust_env=False)
            except httpx.HTTPError as error:
                raise NotYet(f"{type(error).__name__}") from error
            if not answer.is_success:
                raise NotYet(f"HTTP {answer.status_code} {answer.text[:200]}")

        wait_for(what, ask, seconds=_READY_S, say=self.say, alive=self.check_alive)

    def _until_consuming(self, child: Child, queues: tuple[str, ...], wanted: int) -> None:
        address = AmqpAddress.parse(self.urls.amqp)

        def ask() -> None:
            try:
                found = counts(address, queues, "redrive-dev")
            except TopologyError as error:
                raise NotYet(str(error)) from error
            if missing := [queue for queue, each in found.items() if each.consumers < wanted]:
                raise NotYet(f"no consumer yet on {', '.join(missing)}")

        wait_for(
            f"{child.name} to consume", ask, seconds=_READY_S, say=self.say, alive=self.check_alive, every=0.3
        )


def script(name: str) -> str:
    """A console script beside this Python, as `pip install` put it there."""
    return str(Path(sys.executable).parent / name)
