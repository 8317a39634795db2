"""An effect and its key in one transaction, on a real Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from storage.claims import Claim
from storage.effects import Effect
from storage.errors import DatabaseAwayError
from storage.sync import Database as SyncDatabase
from tests.support.claimed import a_claim, expire, over, running
from tests.support.databases import Database
from tests.support.sync_database import sync_database
from workers.child import Ticket
from workers.effects import Once
from workers.errors import AlreadyDone, LostClaimError

pytestmark = pytest.mark.anyio


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    made = await asyncpg.connect(database.url)
    yield made
    await made.close()


@pytest.fixture
def pool(database: Database) -> Iterator[SyncDatabase]:
    with sync_database(database.url, "claims") as made:
        yield made


MARK = "insert into redrive.sample_emails (email_key, state, job_id) values ($1, 'sent', $2)"


def once(pool: SyncDatabase, claim: Claim) -> Once:
    return Once(pool, "key", Ticket(claim.job_id, claim.token, claim.generation, claim.attempt))


async def kept(connection: asyncpg.Connection) -> tuple[int, int]:
    """Keys and rows of the business change."""
    return (
        await connection.fetchval("select count(*) from redrive.effects"),
        await connection.fetchval("select count(*) from redrive.sample_emails"),
    )


async def test_an_effect_and_its_key_are_kept_once(
    connection: asyncpg.Connection, pool: SyncDatabase
) -> None:
    held = await running(connection)
    with once(pool, held) as tx:
        tx.execute(MARK, "key", held.job_id)
        tx.store({"answer": 1})
    with pytest.raises(AlreadyDone) as done, once(pool, held) as tx:
        tx.execute(MARK, "again", held.job_id)
    assert done.value.result == {"answer": 1}
    assert await kept(connection) == (1, 1)


async def test_a_takeover_waits_for_an_effect_that_is_being_committed(
    connection: asyncpg.Connection, pool: SyncDatabase, database: Database
) -> None:
    held = await running(connection)
    await expire(connection, held)

    class Observed(Effect):
        async def commit(self) -> None:
            other = await asyncpg.connect(database.url)
            try:
                await other.execute("set lock_timeout = '200ms'")
                with pytest.raises(DatabaseAwayError, match="lock timeout"):
                    await over(other, a_claim(held.job_id), held.token)
            finally:
                await other.close()
            await super().commit()

    effect = Observed(pool, "key", held.job_id, held.token)

    async def happen() -> bool:
        assert await effect.begin_once() is None
        return await effect.commit_held(None)

    assert pool.run(happen())
    assert await over(connection, a_claim(held.job_id), held.token)


async def test_an_effect_whose_job_is_taken_over_meanwhile_is_not_kept(
    connection: asyncpg.Connection, pool: SyncDatabase
) -> None:
    held = await running(connection)
    await expire(connection, held)

    async def lose_it_inside() -> None:
        with once(pool, held) as tx:
            tx.execute(MARK, "key", held.job_id)
            assert await over(connection, a_claim(held.job_id), held.token)

    with pytest.raises(LostClaimError):
        await lose_it_inside()
    assert await kept(connection) == (0, 0)


async def test_an_effect_that_raises_is_not_kept(connection: asyncpg.Connection, pool: SyncDatabase) -> None:
    held = await running(connection)

    def fail_inside() -> None:
        with once(pool, held) as tx:
            tx.execute(MARK, "key", held.job_id)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert await kept(connection) == (0, 0)
