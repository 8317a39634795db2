"""How fast the relay empties the outbox: `python -m benchmarks.relay`.

The outbox is filled first; then one API process starts and publishes it, confirmed and mandatory, each row
deleted and its job QUEUED after the confirm. Time counts from the first rows that are gone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import asyncpg

from benchmarks import cpu
from dev.servers import acquire
from tests.support.databases import fresh_database, migrated_template
from tests.support.processes import Processes
from tests.support.stack import Stack
from tests.support.vhosts import fresh_vhost
from topology.messages import task_message

QUEUE, TASK = "bench", "bench.noop"
POLL_S = 0.02
TOPOLOGY = """
from pydantic import BaseModel
from topology.spec import JobType, Topology, WorkQueue

class Payload(BaseModel):
    n: int

TOPOLOGY = Topology((WorkQueue("bench", watermark=10**9),), (JobType("bench.noop", "bench", Payload),))
"""


async def fill(url: str, count: int, size: int) -> None:
    """Rows as submissions leave them, with payloads of `size` bytes."""
    ids = [str(uuid.uuid4()) for _ in range(count)]
    tokens = [str(uuid.uuid4()) for _ in range(count)]
    messages = [
        task_message(id_, TASK, {"n": 1, "text": "x" * size}, token=token)
        for id_, token in zip(ids, tokens, strict=True)
    ]
    connection = await asyncpg.connect(url, timeout=60)
    try:
        await connection.copy_records_to_table(
            "jobs",
            schema_name="redrive",
            columns=("id", "type", "queue", "payload", "principal"),
            records=[(id_, TASK, QUEUE, b"{}", "bench") for id_ in ids],
        )
        await connection.copy_records_to_table(
            "outbox",
            schema_name="redrive",
            columns=("job_id", "queue", "properties", "body", "token"),
            records=[
                (id_, QUEUE, message.properties, message.body, token)
                for id_, token, message in zip(ids, tokens, messages, strict=True)
            ],
        )
        await connection.execute("VACUUM ANALYZE redrive.jobs, redrive.outbox")
    finally:
        await connection.close()


def emptied(stack: Stack, count: int, servers: Sequence[int]) -> tuple[float, list[float]]:
    """Messages a second, and microseconds for each of our process and of `servers`."""
    process = stack.start_api(ready=False)
    left = count
    while left == count:
        left = _left(stack)
    pids = (process.pid, *servers)
    begun, at_first, before = time.perf_counter(), left, [cpu.tree_seconds(pid) for pid in pids]
    while left:
        time.sleep(POLL_S)
        left = _left(stack)
        assert process.exit_code is None, process.tail()
    lasted, after = time.perf_counter() - begun, [cpu.tree_seconds(pid) for pid in pids]
    process.terminate(60)
    assert stack.database.value("select count(*) from redrive.jobs where state <> 'QUEUED'") == 0
    return at_first / lasted, [(now - then) * 1e6 / at_first for now, then in zip(after, before, strict=True)]


def _left(stack: Stack) -> int:
    return int(stack.database.value("select count(*) from redrive.outbox"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each round and the median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of a payload")
    parser.add_argument("--server-pids", type=int, nargs="*", default=(), help="to count their CPU time too")
    given = parser.parse_args(arguments)
    rates: list[float] = []
    with acquire("test", print) as servers, migrated_template(servers.urls.database) as template:
        print(f"load {os.getloadavg()[0]:.1f}", flush=True)
        for _ in range(given.rounds):
            with ExitStack() as place:
                vhost = place.enter_context(fresh_vhost(servers.urls.amqp, servers.urls.management))
                database = place.enter_context(fresh_database(servers.urls.database, template))
                directory = Path(place.enter_context(tempfile.TemporaryDirectory()))
                (directory / "bench_topology.py").write_text(TOPOLOGY)
                processes = Processes(directory)
                place.callback(processes.close)
                stack = Stack(vhost, database, processes, {"REDRIVE_TOPOLOGY": "bench_topology:TOPOLOGY"})
                place.callback(stack.close)
                stack.apply_topology()
                asyncio.run(fill(database.url, given.messages, given.size))
                rate, used = emptied(stack, given.messages, given.server_pids)
                depth = stack.depth(QUEUE)
                rates.append(rate)
                twice, shown = depth - given.messages, " ".join(f"{each:.0f}" for each in used)
                print(f"{rate:8,.0f} messages/s   us of CPU each: {shown}   {twice} twice", flush=True)
    print(f"median {statistics.median(rates):,.0f} messages/s")


if __name__ == "__main__":
    main()
