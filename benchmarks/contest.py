"""One worker empties one loaded queue: jobs per second and CPU time."""

from __future__ import annotations

import os
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from benchmarks import cpu, tally
from benchmarks.jobs import RESULTS
from benchmarks.place import Place
from tests.support.processes import Process
from tests.support.waiting import eventually

Contender = Literal["redrive", "celery", "celery+postgres"]
# Left out at the beginning: imports in the pool processes, plans of the statements.
WARM_UP = 0.1
POLL_S = 0.002
DEADLINE_S = 600.0


@dataclass(frozen=True)
class Setting:
    """What each contender gets alike."""

    task: str
    concurrency: int
    prefetch: int  # multiplier

    def __str__(self) -> str:
        return f"{self.task} {self.concurrency}×{self.prefetch}"

    @property
    def queue(self) -> str:
        return f"bench.{self.prefetch}"


class Servers(NamedTuple):
    """Process ids of the servers, where they are known; each stands for its whole tree."""

    broker: int | None
    database: int | None


class Cpu(NamedTuple):
    """Seconds of CPU time; None where the process is not known."""

    main: float
    children: float
    broker: float | None
    database: float | None


@dataclass(frozen=True)
class Run:
    """`per_second`: jobs; `cpu`: per 1,000 jobs; `memory`: MiB of the main process, at the end."""

    per_second: float
    cpu: Cpu
    memory: float


def run(
    contender: Contender, setting: Setting, jobs: int, place: Place, directory: Path, servers: Servers
) -> Run:
    """Load, start, measure from the end of the warm-up to the last job, stop.

    Raises:
        AssertionError: jobs were lost, or stayed undone.
    """
    place.load(f"bench.{setting.task}", setting.queue, jobs)
    runs = directory / f"runs-{uuid.uuid4().hex}"
    runs.mkdir()
    worker = start(contender, setting, place, directory, runs)
    try:
        begun = until(runs, int(jobs * WARM_UP), worker)
        before = _cpu(worker.pid, servers)
        ended = until(runs, jobs, worker)
        after = _cpu(worker.pid, servers)
        memory = cpu.resident_mib(worker.pid)
        if contender == "redrive":
            eventually(lambda: place.unfinished() == 0, 60, "each row says that its job succeeded")
    finally:
        if worker.exit_code is None:
            worker.terminate(60)
    assert tally.read(runs).runs == jobs, f"{jobs} jobs, {tally.read(runs).runs} runs"
    # Plain Celery on a starved machine was seen to end with runs that it had not acked.
    came_back = place.vhost.depth(setting.queue)
    assert contender != "redrive" or came_back == 0, f"{came_back} messages were not acked"
    measured = ended.runs - begun.runs
    used = [
        None if a is None or b is None else (b - a) * 1000 / measured
        for a, b in zip(before, after, strict=True)
    ]
    return Run(measured / (ended.last - begun.last), Cpu(*used), memory)  # type: ignore[arg-type]


def start(contender: Contender, setting: Setting, place: Place, directory: Path, runs: Path) -> Process:
    """A worker that counts its runs in `runs`."""
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith("REDRIVE_WORKER_")},
        tally.DIRECTORY: str(runs),
        "REDRIVE_AMQP_URL": place.vhost.amqp_url,
        "REDRIVE_DATABASE_URL": place.database.url,
        "REDRIVE_TOPOLOGY": "benchmarks.jobs:TOPOLOGY",
    }
    app = "benchmarks.redrive_app" if contender == "redrive" else "benchmarks.celery_app"
    if contender == "celery+postgres":
        url = urlsplit(place.database.url)._replace(scheme="db+postgresql+psycopg")
        # psycopg returns bytes from a cluster whose encoding is SQL_ASCII.
        environment[RESULTS] = url._replace(query="client_encoding=utf8").geturl()
    argv = [sys.executable, "-m", "celery", "-A", app, "worker", "-n", f"{contender}@bench"]
    argv += ["-Q", setting.queue, "-c", str(setting.concurrency)]
    argv += ["--prefetch-multiplier", str(setting.prefetch)]
    return Process(f"worker-{uuid.uuid4().hex[:6]}", argv, environment, directory)


def until(runs: Path, count: int, worker: Process) -> tally.Tally:
    """The tally once `count` jobs have run."""
    deadline = time.monotonic() + DEADLINE_S
    while (seen := tally.read(runs)).runs < count:
        assert worker.exit_code is None, f"the worker ended:\n{worker.tail()}"
        assert time.monotonic() < deadline, f"{seen.runs} of {count} jobs after {DEADLINE_S:g} s"
        time.sleep(POLL_S)
    return seen


def _cpu(pid: int, servers: Servers) -> Cpu:
    broker, database = (None if server is None else cpu.tree_seconds(server) for server in servers)
    return Cpu(cpu.seconds(pid), sum(cpu.seconds(child) for child in cpu.children(pid)), broker, database)
