"""Lists of jobs among many: each is read off an index."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from storage.job_pages import JobCursor, JobFilter, listing
from storage.pool import connect
from storage.settings import StorageSettings
from tests.support.databases import Database

pytestmark = pytest.mark.anyio

MANY = 60_000
FILL = """
INSERT INTO redrive.jobs (id, type, queue, state, created_at)
SELECT md5(n::text), CASE WHEN n % 10000 = 0 THEN 'rare' ELSE 'common' || n % 5 END,
       CASE WHEN n % 10000 = 1 THEN 'rare' ELSE 'common' || n % 3 END,
       CASE WHEN n % 10000 = 2 THEN 'RETRYING' WHEN n % 10000 = 3 THEN 'DEAD' ELSE 'SUCCEEDED' END,
       timestamptz '2026-01-01Z' + n * interval '1 second'
FROM generate_series(1, $1::int) n
"""
MIDDLE = datetime(2026, 1, 1, 8, tzinfo=UTC)
FILTERS = [
    JobFilter(),
    JobFilter(type="rare"),
    JobFilter(type="common1"),
    JobFilter(queue="rare"),
    JobFilter(queue="common1"),
    JobFilter(state="RETRYING"),
    JobFilter(state="DEAD"),
    JobFilter(state="CANCELLED"),
    JobFilter(state="SUCCEEDED"),
    JobFilter(type="none", state="SUCCEEDED"),
    JobFilter(since=MIDDLE, until=datetime(2026, 1, 1, 9, tzinfo=UTC)),
    JobFilter(type="common2", queue="common2", since=MIDDLE),
]


async def test_no_list_reads_through_all_jobs(database: Database) -> None:
    connection = await connect(StorageSettings.model_validate({"database_url": database.url}), "test")
    try:
        await connection.execute(FILL, MANY)
        await connection.execute("ANALYZE redrive.jobs")
        for wanted in FILTERS:
            for after in (None, JobCursor(MIDDLE, "0")):
                statement, values = listing(wanted, 51, after)
                rows = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS) {statement}", *values)
                plan = "\n".join(row[0] for row in rows)
                assert "Seq Scan" not in plan, (wanted, plan)
                read = [int(count) for count in re.findall(r"Rows Removed by Filter: ([0-9]+)", plan)]
                assert sum(read) < 2_000, (wanted, plan)
    finally:
        await connection.close()
