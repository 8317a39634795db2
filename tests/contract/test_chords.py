"""Chords on a real Postgres: who fails one, and until when."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from storage import chords
from tests.support.claimed import insert
from tests.support.databases import Database

pytestmark = pytest.mark.anyio


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    made = await asyncpg.connect(database.url)
    yield made
    await made.close()


async def a_chord(connection: asyncpg.Connection, *states: str) -> list[str]:
    """The members of chord `g`, in these states."""
    members = [await insert(connection, state) for state in states]
    await chords.add(connection, "g", members, b"[]", b"{}")
    return members


async def test_a_chord_is_failed_by_one_member_who_may_say_so_again(connection: asyncpg.Connection) -> None:
    first, second = await a_chord(connection, "DEAD", "DEAD")
    assert await chords.fail(connection, "g", first) == (b"{}", True)
    assert await chords.fail(connection, "g", second) == (b"{}", False)
    assert await chords.fail(connection, "g", first) == (b"{}", True)
    assert await chords.fail(connection, "g", "a stranger") is None


async def test_a_death_that_is_told_late_does_not_fail_a_chord_that_went_on(
    connection: asyncpg.Connection,
) -> None:
    """The member was replayed meanwhile, and the body is on its way."""
    (member,) = await a_chord(connection, "SUCCEEDED")
    assert await chords.complete(connection, ["g"]) == ["g"]
    await chords.announced(connection, ["g"])
    assert await chords.complete(connection, ["g"]) == []
    assert await chords.fail(connection, "g", member) is None


@pytest.mark.parametrize("state", ["PENDING", "QUEUED", "RETRYING", "DEAD", "CANCELLED"])
async def test_a_chord_is_complete_when_all_members_have_succeeded(
    connection: asyncpg.Connection, state: str
) -> None:
    _, last = await a_chord(connection, "SUCCEEDED", state)
    assert await chords.complete(connection, ["g"]) == []
    await connection.execute("update redrive.jobs set state = 'SUCCEEDED' where id = $1", last)
    assert await chords.complete(connection, ["g"]) == ["g"]
