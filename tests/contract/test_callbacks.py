"""A callback is written in the transaction that ends its job, whatever ends it, and sent by one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from storage import callback_list, callbacks, claims, figures, job_actions, job_callbacks, jobs
from storage.callbacks import Callback, Limits, Room
from storage.claims import Completion
from storage.errors import MigrationError
from storage.job_actions import Who
from storage.job_callbacks import JobCallback
from storage.jobs import IdempotencyKey, NewJob
from storage.letter_jobs import Ending, settle
from storage.pool import Pool, open_pool
from storage.schema import WORKS_FROM
from storage.settings import StorageSettings
from tests.support.claimed import a_claim, expire, insert, over, running, take
from tests.support.databases import Database, fresh_database, migrate_to
from tests.support.servers import Servers

pytestmark = pytest.mark.anyio
URL = "https://hooks.example/jobs?token=s3cret"
ASKED = JobCallback(URL, "hooks.example:443")


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    settings = StorageSettings.model_validate({"database_url": database.url})
    made = await open_pool(settings, "test", by_key=True)
    yield made
    await made.close()


@pytest.fixture
async def db(database: Database) -> AsyncIterator[asyncpg.Connection]:
    made = await asyncpg.connect(database.url)
    yield made
    await made.close()


async def waiting(db: asyncpg.Connection, asked: JobCallback = ASKED) -> str:
    job = await insert(db)
    await job_callbacks.attach(db, [(job, asked)])
    return job


async def ends(db: asyncpg.Connection, job: str) -> list[tuple[int, str]]:
    sql = "select generation, job_state from redrive.callbacks where job_id = $1 order by generation"
    rows = await db.fetch(sql, job)
    return [(row["generation"], row["job_state"]) for row in rows]


async def due(
    pool: Pool,
    most: int = 100,
    per_place: int = 100,
    known: Mapping[str, Room] = {},
    lease_s: float = 60,
    most_doubtful: int = 100,
    busy: Mapping[str, int] = {},
    newest_first: bool = False,
) -> list[Callback]:
    limits = Limits(most, most_doubtful, per_place, known, 100, busy, newest_first)
    return await callbacks.claim_due(pool, limits, lease_s=lease_s)


async def counted(db: asyncpg.Connection) -> dict[str, float]:
    numbers, oldest = await figures.callbacks(db, [])
    found = {labels["state"]: number for labels, number in numbers.samples}
    ((_, age_s),) = oldest.samples
    assert (age_s > 0) is (found["pending"] > 0)
    return found


async def ended(db: asyncpg.Connection, count: int, place: str, caller: str = "shop") -> None:
    for _ in range(count):
        job = await waiting(db, JobCallback(f"https://{place}/", place))
        await db.execute("update redrive.jobs set principal = $2 where id = $1", job, caller)
        await db.execute("update redrive.jobs set state = 'CANCELLED' where id = $1", job)


@pytest.mark.parametrize("kind", ["succeeded", "dead", "crashed"])
async def test_a_workers_completion_and_one_that_is_none(db: asyncpg.Connection, kind: Any) -> None:
    job = await waiting(db)
    claim = a_claim(job)
    assert await take(db, claim)
    assert await ends(db, job) == []
    await claims.complete(db, [Completion(claim, kind, result=b"1", retries=0)], crash_bound=1)
    assert await ends(db, job) == [(1, "SUCCEEDED" if kind == "succeeded" else "DEAD")]
    retried = await waiting(db)
    other = a_claim(retried)
    assert await take(db, other)
    await claims.complete(db, [Completion(other, "retry", retries=1)], crash_bound=1)
    assert await ends(db, retried) == []


async def test_a_lost_worker_at_the_bound_a_burial_and_a_letter(db: asyncpg.Connection) -> None:
    lost = await running(db)
    await job_callbacks.attach(db, [(lost.job_id, ASKED)])
    await db.execute("update redrive.jobs set lease_cap = now() where id = $1", lost.job_id)
    await expire(db, lost)
    await over(db, a_claim(lost.job_id), lost.token, crash_bound=1)
    assert await ends(db, lost.job_id) == [(1, "DEAD")]

    buried = await waiting(db)
    assert await claims.bury(db, [(buried, 1, 1, "no")]) == {buried}
    assert await ends(db, buried) == [(1, "DEAD")]
    expired = await waiting(db)
    async with db.transaction():
        await settle(db, [Ending(expired, 7, 1, 1, "expired", "it was over")])
        assert await ends(db, expired) == [(1, "DEAD")]
    (row,) = await db.fetch("select * from redrive.callbacks where job_id = $1", expired)
    assert (row["reason"], row["error"]) == ("expired", "it was over")


async def test_cancelled_while_it_waits_and_while_it_runs(db: asyncpg.Connection) -> None:
    job = await waiting(db)
    assert await job_actions.cancel(db, job, Who("ada", "", None))
    assert await ends(db, job) == [(1, "CANCELLED")]
    claim = await running(db)
    await job_callbacks.attach(db, [(claim.job_id, ASKED)])
    assert not await job_actions.cancel(db, claim.job_id, Who("ada", "", None))
    await claims.complete(db, [Completion(claim, "retry", retries=1)], crash_bound=3)
    assert await ends(db, claim.job_id) == [(1, "CANCELLED")]


async def test_a_rolled_back_end_tells_nobody_and_each_generation_once_under_a_lasting_id(
    db: asyncpg.Connection,
) -> None:
    job = await waiting(db)
    for _ in range(2):
        transaction = db.transaction()
        await transaction.start()
        await db.execute("update redrive.jobs set state = 'DEAD' where id = $1", job)
        made = await db.fetchval("select id from redrive.callbacks where job_id = $1", job)
        await transaction.rollback()
        assert await ends(db, job) == []
    for generation in (1, 2):
        for state in ("DEAD", "QUEUED", "DEAD", "QUEUED"):
            await db.execute(
                "update redrive.jobs set state = $2, generation = $3 where id = $1", job, state, generation
            )
    assert await ends(db, job) == [(1, "DEAD"), (2, "DEAD")]
    assert made == await db.fetchval(
        "select id from redrive.callbacks where job_id = $1 and generation = 1", job
    )


async def test_only_the_ends_that_were_asked_for_and_only_of_jobs_that_asked(db: asyncpg.Connection) -> None:
    job = await waiting(db, JobCallback(URL, "h:1", ("SUCCEEDED",)))
    other = await insert(db, "QUEUED")
    await db.execute("update redrive.jobs set state = 'DEAD' where id = any($1)", [job, other])
    assert await db.fetchval("select count(*) from redrive.callbacks") == 0
    await db.execute("update redrive.jobs set state = 'SUCCEEDED' where id = any($1)", [job, other])
    assert await ends(db, job) == [(1, "SUCCEEDED")]


async def test_it_is_taken_once_until_its_lease_ends_with_the_end_as_it_was(
    pool: Pool, db: asyncpg.Connection
) -> None:
    job = await waiting(db)
    claim = a_claim(job)
    await take(db, claim)
    await claims.complete(
        db, [Completion(claim, "dead", reason="exception", message="no", retries=0)], crash_bound=3
    )
    await db.execute(
        "update redrive.jobs set state = 'QUEUED', generation = 2, error = null where id = $1", job
    )
    (first,) = await due(pool, lease_s=0)
    assert (first.job_state, first.generation, first.error, first.url, first.tries) == (
        "DEAD",
        1,
        "no",
        URL,
        1,
    )
    (again,) = await due(pool)
    assert (again.id, again.tries) == (first.id, 2)
    assert await due(pool) == []
    # The first sender's claim ran out: its failure is not the second one's.
    await callbacks.failed(pool, first, error="slow", retry_in_s=0, dead="x")
    assert await due(pool) == []
    await callbacks.failed(pool, again, status=503, retry_in_s=0)
    assert await counted(db) == {"pending": 1, "dead": 0}
    (third,) = await due(pool)
    await callbacks.delivered(pool, third, 204)
    shown = await job_callbacks.of_job(db, job)
    assert shown is not None
    (delivery,) = shown.as_json()["deliveries"]
    assert (delivery["state"], delivery["tries"], delivery["last_answer"]["status"]) == ("delivered", 3, 204)
    assert "s3cret" not in str(shown.as_json())
    assert await callbacks.prune(pool, days=1, batch=10) == 0
    await db.execute("update redrive.callbacks set ended_at = now() - interval '2 days'")
    assert await callbacks.prune(pool, days=1, batch=10) == 1


async def test_a_result_that_is_too_long_is_left_out(pool: Pool, db: asyncpg.Connection) -> None:
    for size in (100, 101):
        claim = a_claim(await waiting(db))
        await take(db, claim)
        await claims.complete(
            db, [Completion(claim, "succeeded", result=b"1" * size, retries=0)], crash_bound=3
        )
    found = {each.result_size: each.result is None for each in await due(pool)}
    assert found == {100: False, 101: True}


async def test_thousands_for_one_receiver_do_not_keep_another_waiting(
    pool: Pool, db: asyncpg.Connection
) -> None:
    await ended(db, 30, "deaf.example:443")
    await ended(db, 2, "quick.example:443")
    await db.execute(
        "update redrive.callbacks set next_try_at = now() - interval '1 hour' where place like 'deaf%'"
    )
    places = [each.place for each in await due(pool, most=6, per_place=4)]
    assert (places.count("deaf.example:443"), places.count("quick.example:443")) == (4, 2)
    assert await due(pool, known={"deaf.example:443": Room(0, prompt=False)}) == []
    assert len(await due(pool, per_place=4, known={"deaf.example:443": Room(1, prompt=False)})) == 1
    assert len(await due(pool, per_place=4)) == 4
    async with db.transaction():  # another sender is taking some
        await db.fetch("select 1 from redrive.callbacks where tries = 0 limit 5 for update")
        async with asyncio.timeout(20):
            assert len(await due(pool)) == 30 - 4 - 1 - 4 - 5


async def test_of_places_that_are_not_known_to_be_prompt_only_so_many_are_called(
    pool: Pool, db: asyncpg.Connection
) -> None:
    for number in range(12):
        await ended(db, 1, f"new-{number:02}.example:443")
    await ended(db, 2, "quick.example:443")
    known = {"quick.example:443": Room(4, prompt=True), "new-00.example:443": Room(0, prompt=False)}
    found = [each.place for each in await due(pool, most=9, most_doubtful=5, known=known)]
    assert sorted(found) == [
        *(f"new-{number:02}.example:443" for number in range(1, 6)), "quick.example:443", "quick.example:443",
    ]  # fmt: skip
    assert await due(pool, most_doubtful=0, known=known) == []


async def test_callers_whose_places_nobody_knows_have_their_turns(pool: Pool, db: asyncpg.Connection) -> None:
    for number in range(20):
        await ended(db, 2, f"flood-{number:02}.example:443", "flood")
    for caller in ("a", "b"):
        await ended(db, 3, f"{caller}.example:443", caller)
    busy = {"flood": 15, "a": 1}
    assert [each.place for each in await due(pool, most_doubtful=1, busy=busy)] == ["b.example:443"]
    busy["b"] = 1
    places = [each.place for each in await due(pool, most_doubtful=4, busy=busy, per_place=4)]
    assert sorted(places) == ["a.example:443", "a.example:443", "b.example:443", "b.example:443"]
    await ended(db, 1, "a.example:443", "a")
    found = await due(pool, most_doubtful=2)
    assert {each.caller: each.place for each in found} == {
        "flood": "flood-00.example:443", "a": "a.example:443",
    }  # fmt: skip


async def test_the_newest_place_of_a_caller_waits_for_no_flood_before_it(
    pool: Pool, db: asyncpg.Connection
) -> None:
    for number in range(20):
        await ended(db, 2, f"new-{number:02}.example:443")
    # Those that were tried before come up late, and are not new.
    await db.execute(
        "update redrive.callbacks set next_try_at = now() - interval '1 ms' where place like 'new-00%'"
    )
    for newest_first, places in ((True, ["new-19", "new-18"]), (False, ["new-01", "new-02"])):
        found = await due(pool, most_doubtful=2, newest_first=newest_first)
        assert sorted(each.place[:6] for each in found) == sorted(places)


async def test_prompt_places_and_others_are_called_by_turns(pool: Pool, db: asyncpg.Connection) -> None:
    known = {f"quick-{number}.example:443": Room(4, prompt=True) for number in range(6)}
    for place in known:
        await ended(db, 3, place)
    for number in range(6):
        await ended(db, 1, f"new-{number}.example:443")
    found = [each.place[:3] for each in await due(pool, most=6, most_doubtful=3, known=known)]
    assert sorted(found) == ["new"] * 3 + ["qui"] * 3
    found = [each.place[:3] for each in await due(pool, most=6, most_doubtful=1, known=known)]
    assert sorted(found) == ["new"] + ["qui"] * 5


async def test_an_equal_submission_keeps_the_first_callback(db: asyncpg.Connection) -> None:
    key = IdempotencyKey("s", "k", b"digest")

    def new() -> NewJob:
        return NewJob(str(uuid4()), "t", "payments", b"{}", "shop", b"p", b"b", "token", callback=ASKED)

    first, again = await jobs.submit(db, new(), key), await jobs.submit(db, new(), key)
    assert (first.replayed, again.replayed, again.job.id) == (False, True, first.job.id)
    assert await db.fetchval("select count(*) from redrive.job_callbacks") == 1


async def test_on_the_schema_of_the_release_before_nothing_is_stored_and_jobs_are_read(
    servers: Servers,
) -> None:
    with fresh_database(servers.urls.database) as older:
        migrate_to(older.url, WORKS_FROM)
        connection = await asyncpg.connect(older.url)
        pool = await open_pool(StorageSettings.model_validate({"database_url": older.url}), "test")
        try:
            new = NewJob("j", "t", "payments", b"{}", "shop", b"p", b"b", "token", callback=ASKED)
            with pytest.raises(MigrationError, match="storage migrate"):
                await jobs.submit(connection, new, IdempotencyKey("s", "k", b"digest"))
            assert await jobs.find(connection, "j") is None
            assert await job_callbacks.of_job(connection, "j") is None
            assert await due(pool) == []
            assert await figures.callbacks(connection, []) == []
            assert await callbacks.prune(pool, days=1, batch=1) == 0
        finally:
            await pool.close()
            await connection.close()


async def test_what_was_retried_by_hand_is_not_ended_by_the_try_before(
    pool: Pool, db: asyncpg.Connection
) -> None:
    await ended(db, 1, "hooks.example:443")
    (first,) = await due(pool)
    await callback_list.retry(pool, UUID(first.id), by="ada", note="the receiver is mended")
    (second,) = await due(pool)
    assert (first.tries, second.tries) == (1, 1)
    await callbacks.failed(pool, first, status=410, retry_in_s=0, dead="the receiver answered 410: gone")
    assert await counted(db) == {"pending": 1, "dead": 0}
    await callbacks.delivered(pool, second, 200)
    assert await counted(db) == {"pending": 0, "dead": 0}
