"""How long lists and dossiers take among many dead letters: `python -m benchmarks.letters`.

Fills the table, starts the API, and asks it for pages of 50 by each filter, from the newest on and from deep
within; for groups; and for dossiers. Most letters are decided, few are open; one queue died out long ago.
Prints milliseconds of the whole HTTP request. Uses the tests' servers.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from dev.servers import acquire
from tests.support.databases import fresh_database, migrate
from tests.support.processes import Processes
from tests.support.stack import Stack
from tests.support.vhosts import fresh_vhost

_SESSION = (
    "INSERT INTO redrive.drain_sessions (cluster, vhost, queue, consumer) VALUES ('c', '/', 'q.dlq', 'bench')"
)
_GROUPS = """
INSERT INTO redrive.groups (fingerprint, queue, task, reason, exception_type, letters, first_seen, last_seen)
SELECT md5(g::text), 'queue-' || g % 20, 'task-' || g % 100,
       (ARRAY['exception', 'exhausted', 'expired'])[1 + g % 3], 'Error' || g % 40,
       $1 / 2000, now() - interval '30 days', now() - g * interval '1 minute'
FROM generate_series(0, 1999) AS g
"""
# Task 0 and its group are a thousandth of all, as is each other group; queue 19 died out long ago.
_LETTERS = """
INSERT INTO redrive.dead_letters (session_id, dlq, queue, target, reason, state, properties, body, exchange,
    routing_key, body_sha256, body_size, identity, has_identity, message_id, job_id, generation, attempt,
    task, exception_type, fingerprint, dead_at, stored_at)
SELECT 1, g.queue || '.dlq', g.queue, g.queue, g.reason,
       CASE WHEN s < 300 THEN 'open' WHEN s = 301 THEN 'quarantined' WHEN s < 1200 THEN 'discarded'
            ELSE 'replayed' END,
       $2, convert_to('[[], {"order": "' || n || '"}, {}]', 'UTF8'), '', g.queue, sha256(int8send(n)), 30,
       sha256(int8send(-n)), true, 'message-' || n, 'job-' || n, 1, 3,
       g.task, g.exception_type, g.fingerprint,
       now() - ($1 - n) * interval '2.5 seconds', now() - ($1 - n) * interval '2.5 seconds'
FROM generate_series(1::bigint, $1::bigint) AS n
CROSS JOIN LATERAL (SELECT (hashint8(n)::bigint & 65535) % 10000) AS x (s)
JOIN redrive.groups g ON g.fingerprint = md5((CASE WHEN n > $1 / 10 AND n * 7919 % 2000 % 20 = 19 THEN 1
                                               ELSE n * 7919 % 2000 END)::text)
ORDER BY n
"""
_JOBS = """
INSERT INTO redrive.jobs (id, type, queue, state, reason)
SELECT job_id, task, queue, 'DEAD', reason FROM redrive.dead_letters WHERE id % 10 = 0
"""
_ATTEMPTS = """
INSERT INTO redrive.attempts (job_id, generation, attempt, claim, worker, outcome, exception_type, message,
    traceback)
SELECT j.id, 1, a, gen_random_uuid(), 'bench', 'failed', 'Error', 'no',
       repeat('  File "a.py", line 1, in f\n', 20)
FROM redrive.jobs j, generate_series(1, 3) AS a
"""
_PROPERTIES = bytes.fromhex("e000106170706c69636174696f6e2f6a736f6e057574662d3800000000")


async def fill(url: str, letters: int) -> None:
    connection = await asyncpg.connect(url, timeout=60)
    try:
        await connection.execute(_SESSION)
        await connection.execute(_GROUPS, letters)
        await connection.execute(_LETTERS, letters, _PROPERTIES, timeout=1800)
        await connection.execute(_JOBS, timeout=1800)
        await connection.execute(_ATTEMPTS, timeout=1800)
        await connection.execute("VACUUM ANALYZE", timeout=1800)
        await connection.execute("CHECKPOINT", timeout=1800)
    finally:
        await connection.close()


FILTERS: dict[str, dict[str, Any]] = {
    "all": {},
    "queue": {"queue": "queue-3"},
    "queue that died out": {"queue": "queue-19"},
    "dead-letter queue": {"queue": "queue-3.dlq"},
    "reason": {"reason": "expired"},
    "task": {"task": "task-7"},
    "exception": {"exception": "Error7"},
    "no such exception": {"exception": "Unseen"},
    "group": {"group": "c4ca4238a0b923820dcc509a6f75849b"},  # md5('1')
    "job": {"job_id": "job-12345"},
    "state open": {"state": "open"},
    "state replayed": {"state": "replayed"},
    "state quarantined": {"state": "quarantined"},
    "undecided": {"undecided": "true"},
    "since": {"since": "1h"},
    "until": {"until": "10d"},
    "an old hour": {"since": "241h", "until": "10d"},
    "an old day of a queue": {"queue": "queue-3", "since": "11d", "until": "10d"},
    "queue until": {"queue": "queue-3", "until": "10d"},
    "queue and reason": {"queue": "queue-3", "reason": "expired"},
    "queue and state": {"queue": "queue-3", "state": "open"},
    "what never meets": {"queue": "queue-3", "task": "task-4"},
    "queue undecided": {"queue": "queue-3", "undecided": "true"},
    "text": {"text": "order"},
    "rare text": {"text": "no such text"},
    "queue and rare text": {"queue": "queue-3", "text": "no such text"},
    "since and rare text": {"since": "20d", "text": "no such text"},
}


def requests(letters: int, rounds: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(name, path, query), shuffled; half of the pages begin deep within the list."""
    for _ in range(rounds):
        wanted = list(FILTERS.items())
        random.shuffle(wanted)
        for name, query in wanted:
            deep = {}
            if random.random() < 0.5 and "since" not in query and "until" not in query:  # noqa: S311
                deep = {"cursor": str(random.randrange(1, letters))}  # noqa: S311
            yield name, "/dead-letters", query | deep
        yield "groups", "/groups", {}
        yield "groups by letters", "/groups", {"sort": "letters", "state": "open"}
        yield "show", f"/dead-letters/{random.randrange(1, letters)}", {}  # noqa: S311


def measure(http: httpx.Client, letters: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each request, by name."""
    taken: dict[str, list[float]] = {}
    for number, (name, path, query) in enumerate(requests(letters, rounds)):
        begun = time.perf_counter()
        http.get(path, params=query).raise_for_status()
        if number > len(FILTERS):  # the first round warms up
            taken.setdefault(name, []).append((time.perf_counter() - begun) * 1000)
    return taken


def main(arguments: Sequence[str] | None = None) -> None:
    """Print p50, p95 and the most of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        servers = stack.enter_context(acquire("test", print))
        vhost = stack.enter_context(fresh_vhost(servers.urls.amqp, servers.urls.management))
        database = stack.enter_context(fresh_database(servers.urls.database))
        migrate(database.url)
        begun = time.perf_counter()
        asyncio.run(fill(database.url, given.letters))
        print(f"{given.letters:,} letters, filled in {time.perf_counter() - begun:.0f} s")
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        processes = Processes(Path(directory))
        stack.callback(processes.close)
        api = Stack(vhost, database, processes)
        stack.callback(api.close)
        api.start_api()
        taken = measure(api.http, given.letters, given.rounds)
    print("Milliseconds of a request.\n                             p50    p95   most")
    for name, times in sorted(taken.items(), key=lambda pair: -_p95(pair[1])):
        print(f"{name:24} {statistics.median(times):7.1f} {_p95(times):6.1f} {max(times):6.1f}")


def _p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


if __name__ == "__main__":
    main()
