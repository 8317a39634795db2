"""An operator decides about a group while a batch of its letters is stored: one comes before the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from storage import group_states, groups
from storage.groups import Group, Sighting
from storage.pool import AnyConnection
from tests.support import background
from tests.support.databases import Database
from tests.support.waiting import eventually_async

GROUP = Group(f"{7:032x}", "q", None, "rejected", None, None)
WAITING = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
)


@asynccontextmanager
async def connections(database: Database) -> AsyncIterator[tuple[AnyConnection, AnyConnection]]:
    both = [await asyncpg.connect(database.url, timeout=10) for _ in range(2)]
    try:
        yield both[0], both[1]
    finally:
        for each in both:
            await each.close()


async def a_letter(connection: Any) -> Sighting:
    (seen,) = await groups.count(connection, [(GROUP, 1)], silence_s=3600)
    return seen


async def resolve(connection: AnyConnection) -> None:
    await group_states.decide(connection, GROUP.fingerprint, "resolve", by="ada", why="fixed")


async def until_waiting(connection: AnyConnection) -> None:
    await eventually_async(lambda: connection.fetchval(WAITING), 20, "one waits for the other")


def state(database: Database) -> tuple[str, int, int]:
    (row,) = database.fetch(
        "select s.state, s.regressions, g.letters::int from redrive.groups g"
        " join redrive.group_states s using (fingerprint)"
    )
    return row["state"], row["regressions"], row["letters"]


def run(work: Callable[[AnyConnection, AnyConnection], Awaitable[None]], database: Database) -> None:
    async def with_both() -> None:
        async with connections(database) as both:
            await work(*both)

    background.run(with_both())


def test_letters_that_are_being_stored_are_resolved_with_the_others(database: Database) -> None:
    async def work(batch: AnyConnection, operator: AnyConnection) -> None:
        await a_letter(batch)
        async with connections(database) as (look, _):
            stored = batch.transaction()
            await stored.start()
            assert not (await a_letter(batch)).regressed
            deciding = asyncio.ensure_future(resolve(operator))
            await until_waiting(look)
            await stored.commit()
            await deciding

    run(work, database)
    assert state(database) == ("resolved", 0, 2)


def test_letters_that_come_while_it_is_being_resolved_reopen_it(database: Database) -> None:
    async def work(batch: AnyConnection, operator: AnyConnection) -> None:
        await a_letter(batch)
        async with connections(database) as (look, _):
            decision = operator.transaction()
            await decision.start()
            await resolve(operator)
            storing = asyncio.ensure_future(a_letter(batch))
            await until_waiting(look)
            await decision.commit()
            assert (await storing).regressed

    run(work, database)
    assert state(database) == ("open", 1, 2)


class Between:
    """A connection on which something happens just before groups are counted up."""

    def __init__(self, connection: AnyConnection, happens: Callable[[], Awaitable[object]]) -> None:
        self._connection = connection
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        async def ask(sql: str, *values: Any, **options: Any) -> Any:
            if "INSERT INTO redrive.groups" in sql:
                await self._happens()
            return await getattr(self._connection, name)(sql, *values, **options)

        return ask


@pytest.mark.parametrize("others", [(), ("f" * 32,)], ids=["alone", "beside a known group"])
def test_a_group_that_was_made_and_resolved_meanwhile_is_reopened(
    database: Database, others: tuple[str, ...]
) -> None:
    """Two queues' batches bring the first letters of one group, and an operator is quick."""

    async def work(batch: AnyConnection, other: AnyConnection) -> None:
        beside = [Group(print_, "q", None, "expired", None, None) for print_ in others]
        await groups.count(other, [(group, 1) for group in beside], silence_s=3600)

        async def meanwhile() -> None:
            await a_letter(other)
            await resolve(other)

        async with batch.transaction():
            between: Any = Between(batch, meanwhile)
            found = await groups.count(
                between, [(GROUP, 1), *((group, 1) for group in beside)], silence_s=3600
            )
        seen = next(each for each in found if each.fingerprint == GROUP.fingerprint)
        assert (seen.is_new, seen.regressed, seen.news) == (False, True, "regression")

    run(work, database)
    rows = database.fetch("select state from redrive.group_states where fingerprint = $1", GROUP.fingerprint)
    assert [row["state"] for row in rows] == ["open"]
