"""A transaction whose connection the server has ended: an outage, whatever is done next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast
from uuid import uuid4

import pytest

from storage.connection import Connection, connect
from storage.effects import Effect
from storage.errors import DatabaseAwayError, translate
from storage.sync import Database, borrower
from tests.support.databases import Database as FreshDatabase
from tests.support.sync_database import sync_database

Step = Callable[[Effect], Coroutine[Any, Any, Any]]


@pytest.fixture
def pool(database: FreshDatabase) -> Iterator[Database]:
    with sync_database(database.url, "test") as made:
        yield made


def begun_and_lost(pool: Database, database: FreshDatabase) -> Effect:
    """An open transaction, and the end of its connection has been heard of."""
    effect = Effect(pool, str(uuid4()), "job", uuid4())
    assert pool.run(effect.begin_once()) is None
    heard = asyncio.Event()

    async def listen() -> None:
        effect.connection.add_termination_listener(lambda _: heard.set())

    async def wait() -> None:
        async with asyncio.timeout(30):
            await heard.wait()

    pool.run(listen())
    database.cut_connections()
    pool.run(wait())
    return effect


def test_rolling_back_is_done_already(pool: Database, database: FreshDatabase) -> None:
    pool.run(begun_and_lost(pool, database).roll_back())


@pytest.mark.parametrize("step", [lambda it: it.execute("select 1"), lambda it: it.commit_held(None)])
def test_what_is_tried_meets_an_outage(pool: Database, database: FreshDatabase, step: Step) -> None:
    effect = begun_and_lost(pool, database)
    with pytest.raises(DatabaseAwayError):
        pool.run(step(effect))
    pool.run(effect.roll_back())


@pytest.mark.anyio
async def test_a_statement_whose_connection_we_drop_between_its_two_steps_meets_an_outage(
    database: FreshDatabase,
) -> None:
    class Dropped(Connection):
        async def _get_statement(self, *arguments: Any, **options: Any) -> Any:
            prepared = await cast(Any, super())._get_statement(*arguments, **options)
            self.terminate()
            return prepared

    connection = await connect(database.url, connection_class=Dropped)
    with pytest.raises(DatabaseAwayError), translate("ask"):
        await connection.fetchval("select 1")


def test_what_its_borrower_leaves_behind_is_taken_back(pool: Database, database: FreshDatabase) -> None:
    borrower.set(who := object())
    lost = begun_and_lost(pool, database)
    kept = Effect(pool, str(uuid4()), "job", uuid4())
    assert pool.run(kept.begin_once()) is None
    held = kept.connection

    pool.reclaim(who)

    async def ended() -> bool:
        return held.is_closed()

    with pytest.raises(Exception, match="released back to the pool"):
        pool.run(ended())
    pool.run(lost.roll_back())
    pool.run(kept.roll_back())
