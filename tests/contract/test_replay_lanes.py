"""Both lanes of a plan without a rate have letters to send, from its first to its last."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import pytest

from dlq_consumer import replaying
from dlq_consumer.sending import Sent
from storage import replays
from storage.replay_steps import Outgoing
from storage.sessions import Locks
from tests.support import letter_rows
from tests.support.databases import Database
from tests.support.waiting import eventually_async
from topology.publisher import Publisher

pytestmark = pytest.mark.anyio
_PUBLISHED = "SELECT count(*) FROM redrive.replay_items WHERE state = 'published'"


class Meeting:
    """In place of a sender: each pair of batches waits until both are there."""

    def __init__(self, _: Publisher) -> None:
        self._pair = asyncio.Barrier(replaying.LANES)

    async def send(self, items: Sequence[Outgoing]) -> list[Sent]:
        await self._pair.wait()
        return [Sent(item.token, "published") for item in items]


async def test_no_lane_ends_while_letters_are_left(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter_rows.prepare(database)
    letter_rows.store(database, 8)
    database.execute("update redrive.dead_letters set target = 'q'")
    monkeypatch.setattr(replaying, "BATCH", 2)
    monkeypatch.setattr(replaying, "Sender", Meeting)
    figures: Any = SimpleNamespace(replayed=lambda results: None)
    stopping = asyncio.Event()
    locked = await asyncpg.connect(database.url)
    async with asyncpg.create_pool(database.url, min_size=4, max_size=4) as pool:
        await replays.create(pool, list(range(1, 9)), replays.Asked("me"))
        executor = replaying.ReplayExecutor(
            pool,
            Locks(locked),
            cast(Publisher, None),
            figures=figures,
            foreign_after_s=60,
            stopping=stopping,
        )
        running = asyncio.create_task(executor.run())

        async def all_are_out() -> bool:
            return bool(await pool.fetchval(_PUBLISHED) == 8)

        try:
            await eventually_async(all_are_out, 30, "both lanes have sent two batches")
            stopping.set()
            await running
        finally:
            running.cancel()
            await locked.close()
