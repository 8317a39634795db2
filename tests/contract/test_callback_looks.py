"""A sender whose looks take long, as among thousands of places that callbacks wait for."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from dlq_consumer.callbacks.schedule import PAUSES, SHORT_LOOK_S
from dlq_consumer.callbacks.sender import CallbackSender
from outbound.settings import CallbackSettings
from storage import callbacks
from storage.callbacks import Callback
from storage.pool import open_pool
from storage.settings import StorageSettings
from tests.support.databases import Database
from tests.support.ports import free_port
from tests.support.waiting import eventually_async

pytestmark = pytest.mark.anyio
LOOK_S = 0.05
FILL = """
with job as (
    insert into redrive.jobs (id, type, queue) select n::text, 't', 'q' from generate_series(1, 9) n
    returning id
), asked as (
    insert into redrive.job_callbacks (job_id, url, place, states)
    select id, 'http://' || $1::text || '/', $1::text, '{DEAD}' from job
)
insert into redrive.callbacks (id, job_id, generation, attempt, job_state, place)
select gen_random_uuid(), id, 1, 1, 'DEAD', $1::text from job
"""


async def test_looks_that_take_long_are_apart(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody listens there: each try is over at once, and makes it look again.
    place = f"127.0.0.1:{free_port()}"
    database.execute(FILL, place)
    looks: list[tuple[float, float]] = []
    claim_due = callbacks.claim_due

    async def timed(*what: Any, **how: Any) -> list[Callback]:
        began = time.monotonic()
        await pool.execute("select pg_sleep($1)", LOOK_S)  # as among thousands of places
        found = await claim_due(*what, **how)
        looks.append((began, time.monotonic()))
        return found

    monkeypatch.setattr(callbacks, "claim_due", timed)
    settings = CallbackSettings(_env_file=None, secret="s", allow="127.0.0.1")  # type: ignore[call-arg, arg-type]
    pool = await open_pool(StorageSettings.model_validate({"database_url": database.url}), "test")
    stopping = asyncio.Event()
    sending = asyncio.create_task(CallbackSender(pool, settings, stopping).run())
    await eventually_async(lambda: _are(looks, 4), 60, "it looks again and again")
    stopping.set()
    await sending
    await pool.close()
    assert database.value("select count(*) from redrive.callbacks where tries > 0") > 1
    assert LOOK_S > SHORT_LOOK_S
    for (_, ended), (again, _) in pairwise(looks):
        assert again - ended >= LOOK_S * PAUSES * 0.9


async def _are(looks: list[tuple[float, float]], count: int) -> bool:
    return len(looks) >= count
