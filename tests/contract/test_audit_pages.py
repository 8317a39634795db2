"""The audit listed among many rows: each list is read off an index."""

from __future__ import annotations

import re

import pytest

from api.routes import batches, jobs
from storage.audit import SUBMISSIONS, AuditFilter, listing, newest
from storage.pool import Pool, open_pool
from storage.settings import StorageSettings
from tests.support.databases import Database

pytestmark = pytest.mark.anyio

MANY = 60_000
# Submissions of one caller, before them those of another, and a few changes of few people.
FILL = """
INSERT INTO redrive.audit (by, operation, submission, status, ended_at)
SELECT CASE WHEN n % 10000 = 0 THEN 'ada' WHEN n % 6000 = 0 THEN 'ops'
            WHEN n < 20000 THEN 'web' ELSE 'shop' END,
       CASE WHEN n % 10000 = 0 THEN 'dlq discard' WHEN n % 6000 = 0 THEN 'POST /replays'
            ELSE 'POST /jobs' END,
       n % 10000 <> 0 AND n % 6000 <> 0, 202, now()
FROM generate_series(1, $1::int) n
"""
FILTERS = [
    AuditFilter(),
    *(AuditFilter(by=by) for by in ("shop", "web", "ops", "ada", "nobody")),
    AuditFilter(submissions=False),
    AuditFilter(by="shop", submissions=False),
    AuditFilter(operation="POST /replays"),
    AuditFilter(operation="POST /replays/none"),
    AuditFilter(by="shop", operation="dlq"),
    AuditFilter(by="shop", operation="POST /jobs"),
    AuditFilter(operation="POST /jobs/batch", by="ops"),
]


@pytest.mark.parametrize("by_key", [True, False])
async def test_no_list_reads_through_all_rows(database: Database, by_key: bool) -> None:
    settings = StorageSettings.model_validate({"database_url": database.url})
    pool = await open_pool(settings, "test", by_key=by_key)
    try:
        await pool.execute(FILL, MANY)
        await pool.execute("ANALYZE redrive.audit")
        for wanted in FILTERS:
            for before in (None, 30_000):
                statement, values = listing(wanted, 51, before)
                rows = await pool.fetch(f"EXPLAIN (ANALYZE, BUFFERS) {statement}", *values)
                plan = "\n".join(row[0] for row in rows)
                assert "Seq Scan" not in plan, (wanted, plan)
                read = [int(count) for count in re.findall(r"Rows Removed by Filter: ([0-9]+)", plan)]
                assert sum(read) < 2_000, (wanted, before, plan)
        await each_page_is_the_next(pool)
    finally:
        await pool.close()


async def each_page_is_the_next(pool: Pool) -> None:
    for wanted in (AuditFilter(by="ops"), AuditFilter(by="web", operation="POST")):
        every = await newest(pool, wanted, limit=7)
        assert {entry.by for entry in every} == {wanted.by}
        assert [entry.id for entry in every] == sorted((entry.id for entry in every), reverse=True)
        first = await newest(pool, wanted, limit=3)
        assert first + await newest(pool, wanted, limit=4, before=first[-1].id) == every


def test_submissions_are_known_by_their_operations() -> None:
    assert (jobs.ROUTE, batches.ROUTE) == SUBMISSIONS
