"""Submitting jobs over HTTP: `python -m benchmarks.api`.

One uvicorn process of ours, its relay publishing meanwhile, beside one of `bare_app`, in turns, on the
tests' servers: requests a second, latency, CPU time of the process for each request. Then jobs of one caller,
one by one and in batches, and /healthz while the broker is away and submissions come in.

What is compared was measured within a minute on the same machine. Ours and the bare one are started alike
(one uvicorn process, its default loop and parser, no access log) and get the same requests over as many
connections. A batch is what one caller sends instead of a thousand requests, each after the answer to the one
before, so it is compared with those: one connection for both. Beside many callers at once it gains less,
since their jobs are committed together as well; that ratio is printed, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg

from benchmarks import cpu
from benchmarks.bare_app import DATABASE, TABLE
from benchmarks.http_load import Answers, get, load, post
from dev.servers import acquire
from tests.support import background
from tests.support.databases import fresh_database, migrated_template
from tests.support.ports import free_port
from tests.support.processes import Process, Processes
from tests.support.proxy import TcpProxy
from tests.support.servers import ServerUrls
from tests.support.stack import Stack
from tests.support.vhosts import fresh_vhost
from tests.support.waiting import eventually
from topology.catalogue import TOPOLOGY

BATCH = 1_000
HEALTH_RATE = 50.0
SUBMISSION_RATE = 200.0


class Server(NamedTuple):
    """A process that takes POST /jobs."""

    process: Process
    port: int
    headers: str = ""


class Run(NamedTuple):
    """`cpu_us`: microseconds of the server's process for each request or job."""

    per_second: float
    p50: float
    p99: float
    cpu_us: float


def body() -> dict[str, object]:
    payload = {"order_id": f"o-{uuid.uuid4()}", "amount_cents": 1999, "currency": "EUR"}
    return {"type": "payments.charge_order", "payload": payload, "idempotency_key": str(uuid.uuid4())}


def singles(server: Server, count: int) -> list[bytes]:
    return [post("/jobs", json.dumps(body()).encode(), server.headers) for _ in range(count)]


def measured(server: Server, requests: Sequence[bytes], connections: int, each: int = 1) -> Run:
    """A request carries `each` jobs."""
    before = cpu.seconds(server.process.pid)
    answers = load(server.port, requests, connections)
    used = cpu.seconds(server.process.pid) - before
    assert set(answers.statuses) == {202}, answers.statuses
    p50, p99 = answers.quantile(0.5), answers.quantile(0.99)
    return Run(answers.per_second * each, p50, p99, used * 1e6 / len(requests) / each)


def settle(stack: Stack) -> None:
    """All is published, and the queue is below its watermark again."""
    eventually(
        lambda: stack.database.value("select count(*) from redrive.outbox") == 0, 120, "all are published"
    )
    stack.vhost.purge(TOPOLOGY)


def start_ours(stack: Stack, broker: str | None = None) -> Server:
    # Counted as ever, and never reached: one caller asks more often here than the default lets it.
    settings = {"REDRIVE_RATE_PER_S": "1000000", "REDRIVE_RATE_BURST": "1000000"}
    if broker is not None:
        settings["REDRIVE_AMQP_URL"] = broker
    process = stack.start_api(ready=True, **settings)
    key = stack.http.headers["authorization"]
    return Server(process, stack.http.base_url.port or 0, f"Authorization: {key}\r\n")


def start_bare(stack: Stack) -> Server:
    port = free_port()
    arguments = ("benchmarks.bare_app:app", "--port", str(port), "--no-access-log")
    environment = {DATABASE: stack.database.url}
    process = stack.processes.start_module("bare", "uvicorn", *arguments, env=environment)
    process.wait_for_log("Application startup complete")
    return Server(process, port)


def health(server: Server, seconds: float) -> tuple[Answers, Answers]:
    """Of /healthz and of submissions that come in meanwhile."""
    taken: list[Answers] = []
    submissions = singles(server, int(seconds * SUBMISSION_RATE))
    sender = threading.Thread(
        target=lambda: taken.append(load(server.port, submissions, 32, SUBMISSION_RATE))
    )
    sender.start()
    looks = load(server.port, [get("/healthz")] * int(seconds * HEALTH_RATE), 4, HEALTH_RATE)
    sender.join()
    return looks, taken[0]


@contextmanager
def place(urls: ServerUrls, template: str) -> Iterator[Stack]:
    with ExitStack() as stack:
        vhost = stack.enter_context(fresh_vhost(urls.amqp, urls.management))
        database = stack.enter_context(fresh_database(urls.database, template))
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        processes = Processes(Path(directory))
        stack.callback(processes.close)
        made = Stack(vhost, database, processes)
        stack.callback(made.close)
        made.apply_topology()
        background.run(_bare_table(database.url))
        yield made


async def _bare_table(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(TABLE)
    finally:
        await connection.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print medians of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1_500, help="in each round, to each server")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10, help="of /healthz without the broker")
    given = parser.parse_args(arguments)
    with (
        acquire("test", print) as servers,
        migrated_template(servers.urls.database) as template,
        place(servers.urls, template) as stack,
    ):
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)
        _compare(stack, given.rounds, given.requests, given.connections)
        _health(stack, given.seconds)


def _compare(stack: Stack, rounds: int, requests: int, connections: int) -> None:
    ours, bare = start_ours(stack), start_bare(stack)
    found: dict[str, list[Run]] = {"redrive": [], "bare": [], "one by one": [], "batches": []}
    ratios: dict[str, list[float]] = {
        "redrive / bare": [],
        "batches / one by one": [],
        "batches / redrive": [],
    }
    for number in range(rounds + 1):
        each = {"redrive": measured(ours, singles(ours, requests), connections)}
        settle(stack)
        each["bare"] = measured(bare, singles(bare, requests), connections)
        if number == 0:
            continue  # warming up
        each["one by one"] = measured(ours, singles(ours, requests // 4), 1)
        batches = [
            post("/jobs/batch", json.dumps({"jobs": [body() for _ in range(BATCH)]}).encode(), ours.headers)
            for _ in range(4)
        ]
        each["batches"] = measured(ours, batches, 1, BATCH)
        settle(stack)
        for name, of_rounds in ratios.items():
            over, under = (each[part].per_second for part in name.split(" / "))
            of_rounds.append(over / under)
        for name, run in each.items():
            found[name].append(run)
    print(f"{requests} requests over {connections} connections, medians of {rounds} rounds")
    print("              jobs/s   p50 ms   p99 ms  CPU us a job")
    for name, runs in found.items():
        rate, p50, p99, used = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{name:11} {rate:8.0f} {p50:8.1f} {p99:8.1f} {used:13.0f}")
    for name, of_rounds in ratios.items():
        print(f"{name}: {statistics.median(of_rounds):.2f} ({min(of_rounds):.2f} to {max(of_rounds):.2f})")
    for server in (ours, bare):
        server.process.terminate(60)


def _health(stack: Stack, seconds: float) -> None:
    with TcpProxy(stack.vhost.amqp_url, refusing=True) as broker:
        server = start_ours(stack, broker.url)
        looks, submissions = health(server, seconds)
        server.process.terminate(60)
    print(f"without the broker, {SUBMISSION_RATE:.0f} submissions/s for {seconds:g} s:")
    for name, answers in (("/healthz", looks), ("POST /jobs", submissions)):
        p50, p99 = answers.quantile(0.5), answers.quantile(0.99)
        print(f"{name:11} p50 {p50:6.1f} ms   p99 {p99:6.1f} ms   {dict(answers.statuses)}")


if __name__ == "__main__":
    main()
