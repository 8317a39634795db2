"""Replaying dead letters beside pika that publishes them, and beside a shovel: `python -m benchmarks.replay`.

`redrive` is a plan that `dlq consume` carries out, from the plan's commit until each letter is on record as
published; `pika` publishes the same messages, confirmed and mandatory, with many in flight; `shovel` is the
broker's own way from a dead-letter queue back (https://www.rabbitmq.com/docs/shovel-dynamic), where its
plugins rabbitmq_shovel and rabbitmq_shovel_management are enabled. The rounds take turns. Uses the tests'
servers.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import get_args
from urllib.parse import quote

import asyncpg
import httpx

from benchmarks import cpu
from benchmarks.burials import Cemetery, Kind, cemetery, dead_letter_queue, work_queue
from benchmarks.drain import DEADLINE_S, Run, consumer, report, stored
from dev.servers import acquire
from storage import replays
from tests.support import background
from tests.support.databases import Database, fresh_database, migrated_template
from tests.support.memory import peak_bytes
from tests.support.processes import Processes
from tests.support.waiting import eventually, eventually_async
from topology.headers import DEATH_HEADERS
from topology.wire import split

_LETTERS = "SELECT id, properties, body FROM redrive.dead_letters ORDER BY id"
# The last one first: to count them all would take the server a tenth of its time.
_LAST = "SELECT state FROM redrive.replay_items WHERE replay_id = $1::uuid ORDER BY position DESC LIMIT 1"
_UNPUBLISHED = """
SELECT count(*) FROM redrive.replay_items WHERE replay_id = $1::uuid AND state IN ('staged', 'publishing')
"""
_PUBLISHED = "SELECT count(*) FROM redrive.replay_items WHERE replay_id = $1::uuid AND state = 'published'"


def redrive(place: Cemetery, database: Database, kind: Kind, letters: int, processes: Processes) -> Run:
    """Raises AssertionError: letters were not published, or not all arrived."""
    queue = work_queue(kind)
    with consumer(place, database, processes) as process:
        stored(database, letters)
        used = cpu.seconds(process.pid)
        took = background.run(_replay(database.url), DEADLINE_S)
        used = cpu.seconds(process.pid) - used
        memory = peak_bytes(process.pid) / 2**20
    _empty(place, queue, letters)
    return Run(letters / took, used * 1e6 / letters, memory)


async def _replay(url: str) -> float:
    """Seconds."""
    connection = await asyncpg.connect(url)
    try:
        ids = [row["id"] for row in await connection.fetch(_LETTERS)]
        plan = await replays.create(connection, ids, replays.Asked("bench"))
        begun = time.perf_counter()

        async def all_out() -> bool:
            if await connection.fetchval(_LAST, plan.id) != "published":
                return False
            return not await connection.fetchval(_UNPUBLISHED, plan.id)

        await eventually_async(all_out, DEADLINE_S, "all are published")
        took = time.perf_counter() - begun
        assert await connection.fetchval(_PUBLISHED, plan.id) == len(ids)
        return took
    finally:
        await connection.close()


def pika_alone(place: Cemetery, database: Database, kind: Kind, letters: int, directory: Path) -> Run:
    """The letters that are stored, without their deaths."""
    path = directory / "letters.pickle"
    rows = database.fetch(_LETTERS)
    bare = [(split(row["properties"]).without_headers(DEATH_HEADERS).encode(), row["body"]) for row in rows]
    path.write_bytes(pickle.dumps(bare))
    argv = [
        sys.executable,
        "-m",
        "benchmarks.pika_publish",
        place.vhost.amqp_url,
        work_queue(kind),
        str(path),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    _empty(place, work_queue(kind), letters)
    return Run(letters / float(done.stdout), 0.0, 0.0)


def shovel(place: Cemetery, kind: Kind, letters: int) -> Run | None:
    """From the dead-letter queue to the work queue; None where the broker has no shovel."""
    vhost, queue = place.vhost, work_queue(kind)
    uri = f"amqp:///{vhost.vhost}"  # as seen by the broker
    definition = {
        "src-protocol": "amqp091", "src-uri": uri, "src-queue": dead_letter_queue(kind),
        "src-prefetch-count": 2_000, "src-delete-after": "queue-length",
        "dest-protocol": "amqp091", "dest-uri": uri, "dest-queue": queue, "ack-mode": "on-confirm",
    }  # fmt: skip
    begun = time.perf_counter()
    name = f"/api/parameters/shovel/{quote(vhost.vhost, safe='')}/bench"
    answer = vhost.management.put(name, json={"value": definition})
    if answer.status_code == httpx.codes.BAD_REQUEST and "not found" in answer.text.replace("_", " "):
        return None
    answer.raise_for_status()
    with vhost.channel() as channel:
        eventually(
            lambda: channel.queue_declare(queue, passive=True).method.message_count >= letters,
            DEADLINE_S,
            "the shovel has moved all",
        )
    took = time.perf_counter() - begun
    _empty(place, queue, letters)
    return Run(letters / took, 0.0, 0.0)


def _empty(place: Cemetery, queue: str, letters: int) -> None:
    """The work queue, of what has arrived in it."""
    eventually(lambda: place.vhost.depth(queue) >= letters, 60, f"{letters} arrived in {queue}")
    with place.vhost.channel() as channel:
        channel.queue_purge(queue)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each run as it ends, then the medians; ratios are medians of the rounds' ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=20_000)
    parser.add_argument("--body", type=int, default=1_024, help="bytes")
    parser.add_argument("--kind", choices=get_args(Kind), default="job")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the runs as JSON instead of a table")
    given = parser.parse_args(arguments)
    runs: dict[str, list[Run]] = {}

    def add(name: str, run: Run | None) -> None:
        if run is None:
            print(f"{name}: the broker has none", file=sys.stderr)
            return
        print(f"{name}: {run.per_second:,.0f}/s", file=sys.stderr, flush=True)
        runs.setdefault(name, []).append(run)

    with ExitStack() as stack:
        urls = stack.enter_context(acquire("test", lambda line: print(line, file=sys.stderr))).urls
        template = stack.enter_context(migrated_template(urls.database))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes = Processes(directory)
        stack.callback(processes.close)
        for _ in range(given.rounds):
            place = stack.enter_context(cemetery(urls.amqp, urls.management))
            with fresh_database(urls.database, template) as database:
                place.bury(given.kind, given.letters, given.body, database)
                add("redrive", redrive(place, database, given.kind, given.letters, processes))
                add("pika", pika_alone(place, database, given.kind, given.letters, directory))
            place.bury(given.kind, given.letters, given.body, None)
            add("shovel", shovel(place, given.kind, given.letters))
    report(given, runs, 14)


if __name__ == "__main__":
    main()
