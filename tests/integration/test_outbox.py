"""The outbox between two relays, a worker and a crash, on a real Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest

from api.late_confirms import LateConfirms
from storage import late_confirms, outbox, outbox_size
from storage.jobs import IdempotencyKey, NewJob, submit
from storage.outbox import Refused
from storage.pool import Pool, borrow, open_pool
from storage.settings import StorageSettings
from tests.support.databases import Database
from tests.support.proxy import TcpProxy
from tests.support.waiting import eventually, eventually_async

pytestmark = pytest.mark.anyio


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    made = await open_pool(StorageSettings.model_validate({"database_url": database.url}), "test")
    yield made
    await made.close()


async def accept(pool: Pool, job_id: str, queue: str = "payments") -> None:
    new = NewJob(job_id, "t", queue, b"{}", "shop", b"properties", b"body", f"token-{job_id}")
    async with borrow(pool, 5) as db:
        accepted = await submit(db, new, IdempotencyKey("shop", job_id, b"digest"))
    assert not accepted.replayed


async def taken(pool: Pool, *without: str) -> list[str]:
    async with outbox.take(pool, 10, without) as batch:
        return [row.job_id for row in batch.rows]


async def test_rows_come_oldest_first_without_the_paused_queues(pool: Pool) -> None:
    for job_id, queue in (("b", "payments"), ("a", "emails"), ("c", "payments")):
        await accept(pool, job_id, queue)
    assert await taken(pool) == ["b", "a", "c"]
    assert await taken(pool, "payments") == ["a"]
    assert await taken(pool, "payments", "emails") == []


async def test_two_relays_never_hold_the_same_row(pool: Pool) -> None:
    for job_id in ("a", "b", "c"):
        await accept(pool, job_id)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(outbox.take(pool, 2))
        second = await stack.enter_async_context(outbox.take(pool, 2))
        assert [row.job_id for row in first.rows] == ["a", "b"]
        assert [row.job_id for row in second.rows] == ["c"]


async def test_a_confirmed_row_leaves_and_its_job_is_queued(pool: Pool, database: Database) -> None:
    await accept(pool, "a")
    async with outbox.take(pool, 10) as batch:
        await batch.settle([batch.rows[0].id], [])
    assert await taken(pool) == []
    assert database.fetch("select state, queued_at is not null as queued from redrive.jobs") == [
        {"state": "QUEUED", "queued": True}
    ]


@pytest.mark.parametrize("state", ["SUCCEEDED", "RETRYING", "DEAD", "CANCELLED"])
async def test_a_job_that_was_faster_than_its_confirm_keeps_its_state(
    pool: Pool, database: Database, state: str
) -> None:
    await accept(pool, "a")
    async with outbox.take(pool, 10) as batch:
        database.execute("update redrive.jobs set state = $1", state)
        await batch.settle([batch.rows[0].id], [])
    assert database.value("select state from redrive.jobs") == state
    assert await taken(pool) == []


async def states(pool: Pool) -> dict[str, str]:
    return {row["id"]: row["state"] for row in await pool.fetch("select id, state from redrive.jobs")}


async def confirm(pool: Pool) -> list[str]:
    """All that is due; the jobs that may still be PENDING."""
    async with outbox.take(pool, 10) as batch:
        return await batch.settle([row.id for row in batch.rows], [])


async def recorded(pool: Pool, job_ids: list[str]) -> list[str]:
    async with borrow(pool, 5) as db:
        return await late_confirms.record(db, job_ids)


async def found_late(pool: Pool) -> list[str]:
    async with borrow(pool, 5) as db:
        return await late_confirms.find(db)


async def test_a_job_row_that_a_worker_holds_is_not_waited_for_and_queued_when_it_is_free(pool: Pool) -> None:
    for job_id in ("a", "b", "c"):
        await accept(pool, job_id)
    async with pool.acquire() as worker, worker.transaction():
        await worker.execute("update redrive.jobs set worker = 'w' where id <> 'c'")
        assert sorted(await confirm(pool)) == ["a", "b"]
        assert await taken(pool) == []
        assert sorted(await recorded(pool, ["a", "b"])) == ["a", "b"]
        assert await states(pool) == {"a": "PENDING", "b": "PENDING", "c": "QUEUED"}
        await worker.execute("update redrive.jobs set state = 'CANCELLED' where id = 'b'")
    assert await found_late(pool) == ["a"]
    assert await recorded(pool, ["a", "b"]) == []
    assert await states(pool) == {"a": "QUEUED", "b": "CANCELLED", "c": "QUEUED"}


async def test_a_job_row_that_changes_while_the_confirm_is_recorded_is_told_or_queued(
    pool: Pool, database: Database
) -> None:
    """It is found by its place, and has another by then."""
    await accept(pool, "a")
    await pool.execute(
        "create function hold() returns trigger language plpgsql as"
        " $$ begin perform pg_advisory_xact_lock(42); return old; end $$"
    )
    await pool.execute(
        "create trigger hold before delete on redrive.outbox for each row execute function hold()"
    )
    waits = "select count(*) from pg_locks where locktype = 'advisory' and objid = 42 and not granted"
    with database.locked("select pg_advisory_xact_lock(42)"):
        recording = asyncio.create_task(confirm(pool))
        await asyncio.to_thread(eventually, lambda: database.value(waits), 20, "it is being recorded")
        await pool.execute("update redrive.jobs set calls_back = true")
    assert await recorded(pool, await recording) == []
    assert await states(pool) == {"a": "QUEUED"}


async def test_a_job_whose_message_is_in_the_outbox_is_not_taken_for_confirmed(pool: Pool) -> None:
    await accept(pool, "a")
    assert await found_late(pool) == []
    async with outbox.take(pool, 10) as batch:
        await batch.settle([batch.rows[0].id], [])
        assert await found_late(pool) == []
    assert await states(pool) == {"a": "QUEUED"}


async def test_a_refused_row_stays_with_its_reason_and_waits(pool: Pool, database: Database) -> None:
    await accept(pool, "a")
    async with outbox.take(pool, 10) as batch:
        await batch.settle([], [Refused(batch.rows[0].id, "no queue\x00 takes it", 60.0)])
    assert await taken(pool) == []
    (row,) = database.fetch(
        "select tries, last_error, not_before > now() + interval '50 s' as later from redrive.outbox"
    )
    assert row == {"tries": 1, "last_error": "no queue\\u0000 takes it", "later": True}


async def test_a_crash_while_publishing_leaves_every_row(pool: Pool) -> None:
    await accept(pool, "a")
    await accept(pool, "b")

    async def relay() -> None:
        async with outbox.take(pool, 10) as batch:
            await batch.settle([batch.rows[0].id], [])
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        await relay()
    assert await taken(pool) == ["a", "b"]


async def test_why_it_cannot_listen_is_said_once_and_once_more_when_it_changes(
    database: Database, proxy: Callable[..., TcpProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "LISTEN_AGAIN_S", 0.02)
    server = proxy(urlsplit(database.url)._replace(path="/gone").geturl())
    settings = StorageSettings.model_validate({"database_url": server.url})
    said: list[str] = []
    listening = asyncio.create_task(outbox.listen_forever(settings, "test", lambda: None, "me", said.append))
    await asyncio.to_thread(eventually, lambda: server.accepted >= 4, 20, "it tried four times")
    assert [line.partition(": ")[2] for line in said] == [
        'database "gone" does not exist (InvalidCatalogNameError)'
    ]
    server.refuse()
    await asyncio.to_thread(
        eventually, lambda: "ConnectionRefusedError" in said[-1], 20, "the other reason is said"
    )
    listening.cancel()
    await asyncio.wait({listening})


async def test_its_size_counts_what_is_due_and_what_was_refused_but_not_what_is_delayed(
    pool: Pool, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def size(limit: int) -> int:
        async with borrow(pool, 5) as db:
            return await outbox_size.due(db, limit, within_s=60)

    assert await size(10) == 0
    for job_id in "abcdef":
        await accept(pool, job_id)
    assert [await size(limit) for limit in (10, 6, 3)] == [6, 6, 3]
    database.execute(
        "update redrive.outbox set not_before = now() + interval '1 hour' where job_id in ('a', 'f')"
    )
    database.execute("update redrive.outbox set not_before = now() + interval '59 s' where job_id = 'b'")
    assert await size(6) == 4
    database.execute("delete from redrive.outbox where job_id = 'f'")
    assert await size(100) == 4
    # Of many the range of the numbers will do: never too few.
    monkeypatch.setattr(outbox_size, "EXACT", 3)
    assert await size(100) == 5


async def test_a_key_that_was_not_used_is_new(pool: Pool) -> None:
    await accept(pool, "a")
    async with borrow(pool, 5) as db:
        asked = [("shop", ["a"]), ("shop", ["a", "b"]), ("other", ["a"])]
        assert [await outbox_size.any_new(db, *each) for each in asked] == [False, True, True]


async def test_what_a_killed_relay_left_and_what_was_locked_is_queued_in_the_end(
    pool: Pool, database: Database
) -> None:
    await accept(pool, "left")
    await pool.execute("delete from redrive.outbox")
    confirms = LateConfirms(timeout_s=5.0)
    running = asyncio.create_task(confirms.run(pool))
    try:
        await eventually_async(lambda: queued(pool, "left"), 20, "it is found at the start")
        await accept(pool, "locked")
        with database.locked("select from redrive.jobs where id = 'locked' for update"):
            confirms.add(await confirm(pool))
            assert not await queued(pool, "locked")
        await eventually_async(lambda: queued(pool, "locked"), 20, "it is queued once it is free")
    finally:
        running.cancel()
        await asyncio.wait({running})


async def queued(pool: Pool, job_id: str) -> bool:
    return (await states(pool))[job_id] == "QUEUED"
