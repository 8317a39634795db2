"""What one job costs Postgres, by the number of rows in `redrive.jobs`: `python -m benchmarks.rows`.

The worker's own statements, in batches: claim, then complete. The rows that are there already are those of
finished jobs with an attempt each, and a few dead or waiting ones.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import asyncpg
from pydantic import SecretStr

from benchmarks import cpu
from dev.servers import acquire
from storage import claims
from storage.settings import StorageSettings
from tests.support.databases import Database, fresh_database, migrated_template

SIZES = (10_000, 100_000, 1_000_000)
BATCH = 32
_FILL = """
INSERT INTO redrive.jobs (id, type, queue, state, attempt, queued_at, started_at, finished_at, result)
SELECT gen_random_uuid()::text, 'bench.noop', 'bench', CASE n % 200 WHEN 0 THEN 'DEAD' WHEN 1 THEN 'QUEUED'
       WHEN 2 THEN 'RETRYING' ELSE 'SUCCEEDED' END, 1, now(), now(), now(), 'null'
FROM generate_series(1, $1::int) AS n
"""
_FILL_ATTEMPTS = """
INSERT INTO redrive.attempts (job_id, generation, attempt, claim, worker, outcome, ended_at)
SELECT id, 1, 1, gen_random_uuid(), 'bench', 'succeeded', now() FROM redrive.jobs WHERE state <> 'QUEUED'
"""
_QUEUE = """
INSERT INTO redrive.jobs (id, type, queue, state, queued_at)
SELECT id, 'bench.noop', 'bench', 'QUEUED', now() FROM unnest($1::text[]) AS id
"""


class Cost(NamedTuple):
    """Milliseconds per 1,000 jobs; `database` is CPU time of the server, where its process is known."""

    claim: float
    complete: float
    database: float | None


async def fill(url: str, size: int) -> None:
    connection = await asyncpg.connect(url, timeout=60)
    try:
        await connection.execute(_FILL, size, timeout=1800)
        await connection.execute(_FILL_ATTEMPTS, timeout=1800)
        await connection.execute("VACUUM ANALYZE redrive.jobs, redrive.attempts", timeout=1800)
        await connection.execute("CHECKPOINT", timeout=1800)
    finally:
        await connection.close()


async def measure(url: str, jobs: int, used: Callable[[], float | None]) -> Cost:
    """Claim and complete `jobs` new ones."""
    connection = await claims.connect_for_claims(StorageSettings(database_url=SecretStr(url)), "bench")
    claimed = completed = 0.0
    try:
        wanted = [claims.Claim(str(uuid.uuid4()), 1, 1, uuid.uuid4(), "bench.noop") for _ in range(jobs)]
        await connection.execute(_QUEUE, [each.job_id for each in wanted])
        before = used()
        for at in range(0, jobs, BATCH):
            batch = wanted[at : at + BATCH]
            begun = time.perf_counter()
            won = await claims.claim(connection, batch, worker="bench", lease_s=30)
            between = time.perf_counter()
            ends = [claims.Completion(each, "succeeded", result=b"null") for each in batch]
            done = await claims.complete(connection, ends, crash_bound=3)
            completed += time.perf_counter() - between
            claimed += between - begun
            assert len(won) == len(done) == len(batch)
        after = used()
    finally:
        await connection.close()
    spent = None if before is None or after is None else (after - before) * 1e6 / jobs
    return Cost(claimed * 1e6 / jobs, completed * 1e6 / jobs, spent)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the medians; the cost is flat where the lines are alike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, help="numbers of rows")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=4_000, help="in each round")
    parser.add_argument("--database-pid", type=int, help="to count its CPU time too")
    given = parser.parse_args(arguments)

    def used() -> float | None:
        return None if given.database_pid is None else cpu.tree_seconds(given.database_pid)

    with acquire("test", print) as servers, migrated_template(servers.urls.database) as template:
        _compare(servers.urls.database, template, given.sizes, given.rounds, given.jobs, used)


def _compare(
    url: str, template: str, sizes: Sequence[int], rounds: int, jobs: int, used: Callable[[], float | None]
) -> None:
    with ExitStack() as stack:
        databases: dict[int, Database] = {}
        for size in sizes:
            databases[size] = stack.enter_context(fresh_database(url, template))
            asyncio.run(fill(databases[size].url, size))
        costs: dict[int, list[Cost]] = {size: [] for size in sizes}
        for _ in range(rounds):
            for size, database in databases.items():
                costs[size].append(asyncio.run(measure(database.url, jobs, used)))
    print("Milliseconds per 1,000 jobs, medians.")
    print("     rows     claim  complete  CPU of the database")
    for size, found in costs.items():
        claim, complete = (statistics.median(each) for each in ([c[0] for c in found], [c[1] for c in found]))
        spent = [cost.database for cost in found if cost.database is not None]
        print(
            f"{size:9,}  {claim:8.1f}  {complete:8.1f}  {f'{statistics.median(spent):.0f}' if spent else '-'}"
        )


if __name__ == "__main__":
    main()
