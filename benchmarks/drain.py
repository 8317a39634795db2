"""Draining a dead-letter queue into Postgres beside pika that keeps nothing: `python -m benchmarks.drain`.

The letters were published, rejected and dead-lettered by the broker. `pika` drains them with acks of many at
once; `redrive` is `dlq consume`, until all are stored and acked; with `--stored` once more into a table that
has so many letters already. The rounds take turns, so that a noisy machine is noisy to all alike. Uses the
tests' servers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple, get_args

import asyncpg

from benchmarks import cpu
from benchmarks.burials import Cemetery, Kind, cemetery, dead_letter_queue
from benchmarks.letters import fill
from dev.servers import acquire
from tests.support import background
from tests.support.databases import Database, fresh_database, migrated_template
from tests.support.memory import peak_bytes
from tests.support.processes import Process, Processes, console_script
from tests.support.waiting import eventually_async

PREFETCH = 1_500  # of both
CONSUMER = "dlq_consumer.cli:main"
DEADLINE_S = 600.0
_NEWEST = "SELECT coalesce(max(id), 0) FROM redrive.dead_letters"
_STORED = "SELECT count(*) FROM redrive.dead_letters WHERE id > $1"


class Run(NamedTuple):
    """Letters per second, CPU time in µs per letter, and the most memory in MiB."""

    per_second: float
    cpu: float
    memory: float


def pika_alone(place: Cemetery, kind: Kind, letters: int) -> Run:
    queue = dead_letter_queue(kind)
    arguments = (place.vhost.amqp_url, queue, str(letters), str(PREFETCH))
    argv = [sys.executable, "-m", "benchmarks.pika_drain", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert place.vhost.depth(queue) == 0
    return Run(letters / float(done.stdout), 0.0, 0.0)


def redrive(place: Cemetery, database: Database, kind: Kind, letters: int, processes: Processes) -> Run:
    """From the consumer's first look at the queue until the last letter is committed.

    Raises:
        AssertionError: letters were not stored, or not acked.
    """
    queue, before = dead_letter_queue(kind), int(database.value(_NEWEST))
    with consumer(place, database, processes) as process:
        process.wait_for_log(f"draining {queue}", 60)
        begun, used = time.perf_counter(), cpu.seconds(process.pid)
        background.run(_until_newest(database.url, before + letters), DEADLINE_S)
        took = time.perf_counter() - begun
        assert database.value(_STORED, before) == letters
        used = cpu.seconds(process.pid) - used
        memory = peak_bytes(process.pid) / 2**20
    assert place.vhost.depth(queue) == 0, "not all are acked"
    return Run(letters / took, used * 1e6 / letters, memory)


def stored(database: Database, letters: int) -> None:
    """Once there are so many in a database that was empty."""
    background.run(_until_newest(database.url, letters), DEADLINE_S)
    assert database.value(_STORED, 0) == letters


async def _until_newest(url: str, letter_id: int) -> None:
    """On one connection: a new one for each look would take the server longer than storing letters does."""
    connection = await asyncpg.connect(url)
    try:
        await eventually_async(lambda: _reached(connection, letter_id), DEADLINE_S, "all are stored")
    finally:
        await connection.close()


async def _reached(connection: asyncpg.Connection, letter_id: int) -> bool:
    return int(await connection.fetchval(_NEWEST)) >= letter_id


@contextmanager
def consumer(place: Cemetery, database: Database, processes: Processes) -> Iterator[Process]:
    """`dlq consume`, ended at the end."""
    settings = {
        "REDRIVE_AMQP_URL": place.vhost.amqp_url,
        "REDRIVE_MANAGEMENT_URL": place.vhost.management_url,
        "REDRIVE_DATABASE_URL": database.url,
        "REDRIVE_TOPOLOGY": "benchmarks.burials:TOPOLOGY",
        "REDRIVE_WATCH": "foreign.dlq",
    }
    process = processes.start("consumer", console_script(CONSUMER, "consume"), settings)
    try:
        yield process
    finally:
        if process.exit_code is None:
            process.terminate(60)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each run as it ends, then the medians; ratios are medians of the rounds' ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=50_000)
    parser.add_argument("--body", type=int, default=1_024, help="bytes")
    parser.add_argument("--kind", choices=get_args(Kind), default="job")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stored", type=int, help="also into a table that has so many letters")
    parser.add_argument("--json", action="store_true", help="print the runs as JSON instead of a table")
    given = parser.parse_args(arguments)
    runs: dict[str, list[Run]] = {}
    with ExitStack() as stack:
        urls = stack.enter_context(acquire("test", lambda line: print(line, file=sys.stderr))).urls
        template = stack.enter_context(migrated_template(urls.database))
        place = stack.enter_context(cemetery(urls.amqp, urls.management))
        processes = Processes(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        stack.callback(processes.close)
        full = None
        if given.stored:
            full = stack.enter_context(fresh_database(urls.database, template))
            asyncio.run(fill(full.url, given.stored))
        for _ in range(given.rounds):
            place.bury(given.kind, given.letters, given.body, None)
            _add(runs, "pika", pika_alone(place, given.kind, given.letters))
            with fresh_database(urls.database, template) as empty:
                place.bury(given.kind, given.letters, given.body, empty)
                _add(runs, "redrive", redrive(place, empty, given.kind, given.letters, processes))
            if full is not None:
                place.bury(given.kind, given.letters, given.body, full)
                name = f"redrive, {given.stored:,} stored"
                _add(runs, name, redrive(place, full, given.kind, given.letters, processes))
    report(given, runs, 26)


def report(given: argparse.Namespace, runs: dict[str, list[Run]], width: int) -> None:
    """Print medians, and the medians of the ratios to `pika` round by round; with --json the runs."""
    if given.json:
        print(json.dumps({name: [run._asdict() for run in found] for name, found in runs.items()}))
        return
    print(f"{given.letters:,} letters of {given.kind}s, bodies of {given.body:,} bytes; medians")
    print(f"{'':{width}}letters/s  of pika  CPU µs each  most MiB")
    for name, found in runs.items():
        pairs = zip(found, runs["pika"], strict=True)
        ratio = statistics.median(ours.per_second / pika.per_second for ours, pika in pairs)
        speed, used, memory = (statistics.median(each) for each in zip(*found, strict=True))
        numbers = f"{speed:9,.0f}{ratio:9.2f}{used or float('nan'):13.0f}{memory or float('nan'):10.0f}"
        print(f"{name:{width}}{numbers}")


def _add(runs: dict[str, list[Run]], name: str, run: Run) -> None:
    print(f"{name}: {run.per_second:,.0f}/s", file=sys.stderr, flush=True)
    runs.setdefault(name, []).append(run)


if __name__ == "__main__":
    main()
