"""What waiting jobs cost a worker: `python -m benchmarks.waiting [--jobs 20000] [--seconds 30]`.

The jobs have an eta and are published straight into the work queue, as any Celery program would. The worker's
memory is looked at until all have run; each run notes how late it is. Then the same with plain
Celery on a classic queue. First of all the promise by itself: the worker is stopped once all wait on the
ladder, and what comes back to the work queue is taken off it with its lateness. Uses the tests' servers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pika

from benchmarks.waiting_jobs import NOTES, TASK, TOPOLOGY
from dev.servers import ServerUrls, acquire
from tests.support.databases import fresh_database, migrate
from tests.support.memory import rss_bytes
from tests.support.processes import Process, Processes
from tests.support.vhosts import Vhost, fresh_vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import apply
from topology.entities import compile_topology
from topology.names import ladder_names

WARM_UP = 500
WORKER = ("worker", "-c", "2", "-l", "WARNING", "-n", "waiting@bench")


class Measured(NamedTuple):
    """Lateness in seconds, memory in MB (main process and children)."""

    grown: float
    p50: float
    p99: float
    most: float


@contextmanager
def worker(kind: str, urls: ServerUrls, directory: Path) -> Iterator[tuple[Vhost, Process]]:
    with ExitStack() as stack:
        vhost = stack.enter_context(fresh_vhost(urls.amqp, urls.management))
        processes = Processes(directory)
        stack.callback(processes.close)
        settings = {NOTES: str(directory / "notes"), "PLAIN_AMQP_URL": vhost.amqp_url}
        if kind == "ours":
            apply(AmqpAddress.parse(vhost.amqp_url), compile_topology(TOPOLOGY))
            database = stack.enter_context(fresh_database(urls.database))
            migrate(database.url)
            settings |= {
                "REDRIVE_AMQP_URL": vhost.amqp_url,
                "REDRIVE_DATABASE_URL": database.url,
                "REDRIVE_TOPOLOGY": "benchmarks.waiting_jobs:TOPOLOGY",
            }
        argv = [sys.executable, "-m", "celery", "-A", f"benchmarks.waiting_jobs:{kind}", *WORKER]
        process = processes.start(kind, argv, settings)
        eventually(lambda: _consumed(vhost), 60, "the worker consumes", ignoring=(Exception,))
        yield vhost, process


def _consumed(vhost: Vhost) -> bool:
    return vhost.consumers("work") == 1


def publish(vhost: Vhost, jobs: int, seconds: float) -> None:
    """Each due `seconds` after it is published."""
    with vhost.channel() as channel:
        for _ in range(jobs):
            due = time.time() + seconds
            headers = {"task": TASK, "id": str(uuid4()), "eta": None}
            if seconds:
                headers["eta"] = datetime.fromtimestamp(due, UTC).isoformat()
            properties = pika.BasicProperties(
                content_type="application/json", content_encoding="utf-8", headers=headers, delivery_mode=2
            )
            body = json.dumps([[], {"due": due}, {}]).encode()
            channel.basic_publish("", "work", body, properties)


def measure(kind: str, urls: ServerUrls, jobs: int, seconds: float) -> Measured:
    with tempfile.TemporaryDirectory() as place, worker(kind, urls, Path(place)) as (vhost, process):
        notes = Path(place) / "notes"
        notes.touch()

        def noted(count: int) -> bool:
            return notes.read_text().count("\n") >= count

        publish(vhost, WARM_UP, 0)
        eventually(lambda: noted(WARM_UP), 120, "warm", every_s=0.5)
        with peak_rss(process.pid) as grown:
            publish(vhost, jobs, seconds)
            eventually(lambda: noted(WARM_UP + jobs), 600 + seconds, "all have run", every_s=1)
        late = [float(line) for line in notes.read_text().splitlines()[WARM_UP:]]
        return measured(grown[0], late)


def measure_returns(urls: ServerUrls, jobs: int, seconds: float) -> Measured:
    """Lateness at the return to the work queue.

    Raises:
        AssertionError: the first was due before all were on the ladder; give them more `seconds`.
    """
    with tempfile.TemporaryDirectory() as place, worker("ours", urls, Path(place)) as (vhost, process):
        queues = [queue for queue in ladder_names(TOPOLOGY.queues[0]) if ".retry." in queue]
        notes = Path(place) / "notes"
        with peak_rss(process.pid) as grown:
            publish(vhost, jobs, seconds)
            eventually(lambda: sum(vhost.depths(queues).values()) == jobs, seconds, "all wait", every_s=0.5)
        process.terminate(60)
        assert not notes.exists(), "some were due before"
        late: list[float] = []
        with vhost.channel() as channel:
            silence_s = seconds * 1.2 + 10
            for method, _, body in channel.consume("work", auto_ack=True, inactivity_timeout=silence_s):
                if method is None or body is None:
                    break
                late.append(time.time() - json.loads(body)[1]["due"])
                if len(late) == jobs:
                    break
        assert len(late) == jobs, f"{len(late)} of {jobs} came back"
        return measured(grown[0], late)


def measured(grown: int, late: list[float]) -> Measured:
    late.sort()
    return Measured(grown / 1e6, late[len(late) // 2], late[int(len(late) * 0.99)], late[-1])


@contextmanager
def peak_rss(pid: int) -> Iterator[list[int]]:
    """Bytes by which the process and its children have grown at most, once it is left."""
    before, seen, over = rss_bytes(pid), [0], threading.Event()

    def look() -> None:
        while not over.wait(0.2):
            seen[0] = max(seen[0], rss_bytes(pid) - before)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def main() -> None:
    """A line for the returns, one for our worker and one for plain Celery's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--only", choices=("returns", "ours", "plain"))
    asked = parser.parse_args()
    print(f"{asked.jobs} jobs, each waiting {asked.seconds:g} s; {os.cpu_count()} cores")
    print("          memory grown MB   late p50 s    p99 s    max s")
    with acquire("test", lambda line: None) as servers:
        for kind in (asked.only,) if asked.only else ("returns", "ours", "plain"):
            if kind == "returns":
                run = measure_returns(servers.urls, asked.jobs, asked.seconds)
            else:
                run = measure(kind, servers.urls, asked.jobs, asked.seconds)
            print(f"{kind:10}{run.grown:15.1f}{run.p50:13.2f}{run.p99:9.2f}{run.most:9.2f}", flush=True)


if __name__ == "__main__":
    main()
