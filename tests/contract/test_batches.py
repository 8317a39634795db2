"""Batches of jobs that meet in the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from storage import batches
from storage.jobs import IdempotencyKey, NewJob
from storage.pool import Pool, open_pool
from storage.settings import StorageSettings
from tests.support.databases import Database

pytestmark = pytest.mark.anyio


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    made = await open_pool(StorageSettings.model_validate({"database_url": database.url}), "test")
    yield made
    await made.close()


async def test_batches_with_the_same_keys_in_other_orders_never_deadlock(pool: Pool) -> None:
    async def send(number: int, round_: int) -> list[str]:
        wanted = [
            (
                NewJob(f"{round_}-{number}-{place}", "t", "payments", b"{}", "shop", b"p", b"b", "token"),
                IdempotencyKey("shop", f"{round_}-{place:03}", b"digest"),
            )
            for place in range(300)
        ]
        ordered = wanted[::-1] if number % 2 else wanted
        async with pool.acquire() as db:
            became = await batches.submit(db, "shop", ordered)
        return sorted(each.job_id for each in became)

    for round_ in range(10):
        first, *others = await asyncio.gather(*(send(number, round_) for number in range(4)))
        assert len(set(first)) == 300
        assert others == [first] * 3
