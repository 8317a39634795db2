"""What a relay takes at once: the oldest, by number and by bytes, whatever is left out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from storage import outbox
from storage.pool import Pool, open_pool
from storage.settings import StorageSettings
from tests.support.databases import Database

pytestmark = pytest.mark.anyio
MANY = 20_000
FILL = """
with job as (insert into redrive.jobs (id, type, queue)
             select $1 || n, 't', $2 from generate_series(1, $3::int) as n returning id)
insert into redrive.outbox (job_id, queue, properties, body, token, not_before)
select id, $2, 'p', decode(repeat('00', $4::int), 'hex'), id, now() - make_interval(secs => $5) from job
"""
BLOCKS = 300


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    made = await open_pool(StorageSettings.model_validate({"database_url": database.url}), "test")
    yield made
    await made.close()


def fill(database: Database, queue: str, count: int, *, size: int = 1, age_s: float = 0.0) -> None:
    database.execute(FILL, f"{queue}-{age_s}-", queue, count, size, age_s)


async def test_a_batch_ends_by_its_bytes_and_the_rest_is_known_to_be_due(
    database: Database, pool: Pool
) -> None:
    fill(database, "q", 5, size=outbox.BATCH_BYTES // 2)
    async with outbox.take(pool, 200) as batch:
        assert (len(batch.rows), batch.more) == (2, True)
        await batch.settle([row.id for row in batch.rows], [])
    fill(database, "huge", 1, size=outbox.BATCH_BYTES + 1, age_s=60)
    async with outbox.take(pool, 200) as batch:
        assert [row.queue for row in batch.rows] == ["huge"]
        await batch.settle([row.id for row in batch.rows], [])
    async with outbox.take(pool, 3) as batch:
        assert (len(batch.rows), batch.more) == (2, True)


async def test_the_oldest_of_all_queues_come_first_also_while_one_is_left_out(
    database: Database, pool: Pool
) -> None:
    for age_s, queue in ((50, "full"), (40, "b"), (30, "a"), (20, "b"), (10, "c")):
        fill(database, queue, 2, age_s=age_s)
    for without, wanted in (
        ((), ["full", "full", "b", "b", "a", "a", "b"]),
        (("full",), ["b", "b", "a", "a", "b", "b", "c"]),
        (("full", "b"), ["a", "a", "c", "c"]),
        (("full", "a", "b", "c"), []),
    ):
        async with outbox.take(pool, 7, without) as batch:
            assert ([row.queue for row in batch.rows], batch.more) == (wanted, len(wanted) == 7)


async def test_two_relays_share_what_one_queue_has(database: Database, pool: Pool) -> None:
    fill(database, "full", 1, age_s=60)
    fill(database, "q", 10)
    async with outbox.take(pool, 6, ["full"]) as first, outbox.take(pool, 6, ["full"]) as second:
        assert (len(first.rows), len(second.rows)) == (6, 4)


@pytest.mark.parametrize("analyzed", [True, False])
async def test_what_is_left_out_is_not_read(database: Database, pool: Pool, analyzed: bool) -> None:
    """A million messages of a full queue would else be read for each batch of the others."""
    fill(database, "full", MANY, age_s=60)
    fill(database, "q", 10)
    if analyzed:
        database.execute("analyze redrive.outbox")
    explain = f"explain (analyze, buffers, format json) {outbox.TAKE_WITHOUT}"
    plan = json.loads(await pool.fetchval(explain, ["full"], 200, outbox.BATCH_BYTES))[0]["Plan"]
    assert plan["Actual Rows"] == 10
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < BLOCKS


@pytest.mark.parametrize("analyzed", [True, False])
async def test_of_what_is_not_confirmed_nothing_is_read(
    database: Database, pool: Pool, analyzed: bool
) -> None:
    """After an outage a million jobs are PENDING, and each batch is a few of them."""
    fill(database, "q", MANY)
    if analyzed:
        database.execute("analyze")
    ids = [row["id"] for row in database.fetch("select id from redrive.outbox order by id limit 200")]
    explain = f"explain (analyze, format json) {outbox.CONFIRMED}"
    plan = json.loads(await pool.fetchval(explain, ids))[0]["Plan"]
    assert database.value("select count(*) from redrive.jobs where state = 'QUEUED'") == 200
    assert max(jobs_read(plan)) == 200


def jobs_read(plan: dict[str, Any]) -> Iterator[int]:
    if plan.get("Relation Name") == "jobs":
        yield plan["Actual Rows"] * plan["Actual Loops"] + plan.get("Rows Removed by Filter", 0)
    for part in plan.get("Plans", ()):
        yield from jobs_read(part)


@pytest.mark.parametrize("full", [True, False])
async def test_what_is_confirmed_is_found_by_key_also_by_a_plan_of_an_empty_table(
    database: Database, pool: Pool, full: bool
) -> None:
    if full:
        fill(database, "q", MANY)
    async with pool.acquire() as connection:
        await connection.execute(f"{outbox.BEGIN}; set local plan_cache_mode = force_generic_plan")
        await connection.execute(f"prepare p as {outbox.CONFIRMED}")
        lines = await connection.fetch("explain execute p('{1,2,3}')")
        plan = "\n".join(line[0] for line in lines)
        await connection.execute("rollback; deallocate p")
    assert "Scan using jobs_pkey on jobs" in plan, plan
    assert "Tid Scan on jobs" in plan, plan
    assert "Seq Scan on jobs" not in plan, plan
