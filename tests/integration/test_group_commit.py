"""Jobs that are committed together are accepted, repeated and refused each for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import cast

import asyncpg
import pytest

from api import group_commit
from api.group_commit import MOST, MOST_BYTES, GroupCommit, _Waiting
from storage import submissions
from storage.audit import Actor, Submitting
from storage.errors import DatabaseAwayError
from storage.jobs import Accepted, IdempotencyConflictError, IdempotencyKey, NewJob
from storage.pool import AnyConnection, Pool, borrow, open_pool
from storage.settings import StorageSettings
from storage.submissions import Submission
from tests.support.databases import Database

pytestmark = pytest.mark.anyio
TOLD = Submitting(Actor("shop", "10.0.0.9", "abcd1234"), "POST /jobs")


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    settings = StorageSettings.model_validate({"database_url": database.url})
    made = await open_pool(settings, "test", stateless=True)
    yield made
    await made.close()


def job(number: int, key: str = "", request: bytes = b"digest") -> Submission:
    id_ = f"job-{number:04}"
    new = NewJob(id_, "t", "payments", b"{}", "shop", b"properties", b"body", f"token-{id_}")
    return Submission(new, IdempotencyKey("shop", key or id_, request), TOLD)


async def all_of(group: GroupCommit, wanted: list[Submission]) -> list[Accepted | BaseException]:
    """Submitted at the same time."""
    return await asyncio.gather(*(group.submit(*each) for each in wanted), return_exceptions=True)


def committing(pool: Pool) -> GroupCommit:
    return GroupCommit(lambda: borrow(pool, 5))


def accepted(found: list[Accepted | BaseException]) -> list[tuple[str, bool]]:
    return [(each.job.id, each.replayed) for each in found if isinstance(each, Accepted)]


async def test_jobs_of_one_moment_are_all_accepted_by_few_commits(pool: Pool, database: Database) -> None:
    count = 2 * MOST + 7
    found = await all_of(committing(pool), [job(number) for number in range(count)])
    assert accepted(found) == [(f"job-{number:04}", False) for number in range(count)]
    assert database.value("select count(distinct xmin::text) from redrive.jobs") <= 4
    tables = ("jobs", "outbox", "idempotency_keys")
    assert [database.value(f"select count(*) from redrive.{table}") for table in tables] == [count] * 3
    record = """select count(*) from redrive.audit a
        join redrive.jobs j on a.targets = array[j.id] and a.at = j.created_at
        where a.submission and (a.by, a.key_id, came_from, status) = ('shop', 'abcd1234', '10.0.0.9', 202)"""
    assert database.value(record) == count


async def test_each_hears_its_own_answer(pool: Pool, database: Database) -> None:
    group = committing(pool)
    await group.submit(*job(0, "old"))
    refused = job(5)._replace(new=job(5).new._replace(type="a\x00b"))
    wanted = [
        job(1),
        job(2, "old"),
        job(3, "old", b"another"),
        job(4, "twice"),
        job(9, "twice"),
        refused,
        job(6),
    ]
    first, repeated, conflict, once, twice, bad, last = await all_of(group, wanted)
    assert accepted([first, last]) == [("job-0001", False), ("job-0006", False)]
    assert accepted([repeated]) == [("job-0000", True)]
    assert isinstance(conflict, IdempotencyConflictError)
    assert "job-0000" in str(conflict)
    assert accepted([once, twice]) == [("job-0004", False), ("job-0004", True)]
    assert isinstance(bad, asyncpg.DataError)
    ids = [row["id"] for row in database.fetch("select id from redrive.jobs order by id")]
    assert ids == ["job-0000", "job-0001", "job-0004", "job-0006"]


async def test_no_job_waits_for_a_commit_that_nobody_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    async def commit(_: object, together: Sequence[_Waiting]) -> None:
        for each in together:
            each.done.set_result(cast(Accepted, each.job.new.id))

    @asynccontextmanager
    async def database() -> AsyncIterator[AnyConnection]:
        yield cast(AnyConnection, None)

    monkeypatch.setattr(group_commit, "AT_ONCE", 1)
    monkeypatch.setattr(group_commit, "_commit", commit)
    group = GroupCommit(database)
    # Each comes in the turn of the loop in which the commit before it has ended.
    async with asyncio.timeout(20):
        for number in range(5):
            await group.submit(*job(number))


async def test_without_the_database_each_is_told_and_the_next_are_accepted(pool: Pool) -> None:
    away = True

    @asynccontextmanager
    async def database() -> AsyncIterator[AnyConnection]:
        if away:
            raise DatabaseAwayError("away")
        async with borrow(pool, 5) as db:
            yield db

    group = GroupCommit(database)
    found = await all_of(group, [job(number) for number in range(5)])
    assert [type(each) for each in found] == [DatabaseAwayError] * 5
    assert len({id(each) for each in found}) == 5
    away = False
    assert len(accepted(await all_of(group, [job(number) for number in range(5)]))) == 5


async def test_who_gives_up_takes_nobody_along(pool: Pool) -> None:
    began = asyncio.Event()

    @asynccontextmanager
    async def database() -> AsyncIterator[AnyConnection]:
        began.set()
        async with borrow(pool, 5) as db:
            yield db

    group = GroupCommit(database)
    sent = [asyncio.create_task(group.submit(*job(number))) for number in range(20)]
    await began.wait()
    for task in sent[::2]:
        task.cancel()
    found = await asyncio.gather(*sent, return_exceptions=True)
    assert len(accepted(list(found[1::2]))) == 10
    assert {type(each) for each in found[::2]} == {asyncio.CancelledError}


async def test_two_processes_with_the_same_keys_make_each_job_once(pool: Pool, database: Database) -> None:
    keys = [f"k{number}" for number in range(30)]
    one = [job(number, key) for number, key in enumerate(keys)]
    other = [job(100 + number, key) for number, key in enumerate(reversed(keys))]
    found = await asyncio.gather(all_of(committing(pool), one), all_of(committing(pool), other))
    assert sorted(replayed for part in found for _, replayed in accepted(part)) == [False] * 30 + [True] * 30
    assert database.value("select count(*) from redrive.jobs") == 30


async def test_of_a_borrowed_connection_nothing_is_left_open(pool: Pool, database: Database) -> None:
    with suppress(ZeroDivisionError):
        async with borrow(pool, 5) as db:
            await db.execute("begin")
            await submissions.submit(db, [job(1), job(2)])
            raise ZeroDivisionError
    assert database.value("select count(*) from redrive.jobs") == 0
    async with borrow(pool, 5) as db:
        assert await db.fetchval("select pg_current_xact_id_if_assigned()") is None
    active = (
        "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in%'"
    )
    assert database.value(active) == 0


async def test_large_jobs_are_not_put_into_one_statement(pool: Pool, database: Database) -> None:
    def large(number: int) -> Submission:
        plain = job(number)
        return plain._replace(new=plain.new._replace(body=b"x" * (MOST_BYTES // 2)))

    wanted = [large(0), large(1), *map(job, range(2, 20)), large(20)]
    assert len(accepted(await all_of(committing(pool), wanted))) == 21
    assert (
        database.value("select max(n) from (select count(*) as n from redrive.jobs group by xmin::text) x")
        < 21
    )
    together = "select count(distinct xmin::text) from redrive.jobs where id in ('job-0000', 'job-0001')"
    assert database.value(together) == 2


async def test_nobody_waits_for_a_database_that_those_before_found_away(pool: Pool) -> None:
    """Each of them would wait as long as the first, one group after the other."""
    tries = 0

    @asynccontextmanager
    async def database() -> AsyncIterator[AnyConnection]:
        nonlocal tries
        tries += 1
        raise DatabaseAwayError("no answer")
        yield cast(AnyConnection, None)

    found = await all_of(GroupCommit(database), [job(number) for number in range(10 * MOST)])
    assert {type(each) for each in found} == {DatabaseAwayError}
    assert tries <= group_commit.AT_ONCE
