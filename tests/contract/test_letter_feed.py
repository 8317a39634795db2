"""A follower of the letters gets each once, whatever the order in which they are committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from storage import letter_feed
from storage.letter_feed import Gap, LetterFeed, from_now
from storage.letter_filter import LetterFilter
from tests.support.databases import Database
from tests.support.letter_rows import LETTERS, prepare, store
from topology.wire import properties

pytestmark = pytest.mark.anyio
PROPERTIES = properties(message_id="m").encode()
ALL = LetterFilter()


@pytest.fixture
async def db(database: Database) -> AsyncIterator[Any]:
    prepare(database)
    connection = await asyncpg.connect(database.url, timeout=10)
    yield connection
    await connection.close()


@asynccontextmanager
async def another(database: Database) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database.url, timeout=10)
    try:
        yield connection
    finally:
        await connection.close()


async def seen(feed: LetterFeed, db: Any, wanted: LetterFilter = ALL) -> list[int]:
    return [letter.id for letter in await feed.next(db, wanted)]


async def test_a_letter_that_commits_after_later_ones_is_handed_on(database: Database, db: Any) -> None:
    feed = await from_now(db)
    async with another(database) as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute(LETTERS, 2, PROPERTIES, "t")  # ids 1 and 2, not committed
        store(database, 1)
        assert await seen(feed, db) == [3]
        for _ in range(3):  # however often it looks meanwhile
            assert await seen(feed, db) == []
        later = LetterFeed.at(feed.position)
        await transaction.commit()
        assert await seen(feed, db) == [1, 2]
        assert await seen(later, db) == [1, 2]
    for _ in range(3):
        assert await seen(feed, db) == []
    assert feed.position == "3"


async def test_ids_given_out_before_the_feed_began_are_looked_for_too(database: Database, db: Any) -> None:
    store(database, 1)
    async with another(database) as slow:
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute(LETTERS, 1, PROPERTIES, "t")
        store(database, 1)
        feed = await from_now(db)
        assert await seen(feed, db) == []
        await transaction.commit()
        assert await seen(feed, db) == [2]


async def test_an_id_that_nobody_can_use_any_more_is_given_up(database: Database, db: Any) -> None:
    feed = await from_now(db)
    await db.execute("select nextval('redrive.dead_letters_id_seq') from generate_series(1, 5)")
    store(database, 1)
    assert await seen(feed, db) == [6]
    assert feed.position == "6;1-5"
    for _ in range(2):
        assert await seen(feed, db) == []
    assert feed.position == "6"


async def test_a_part_of_a_gap_that_is_filled_leaves_the_rest(database: Database, db: Any) -> None:
    feed = await from_now(db)
    async with another(database) as slow, another(database) as slower:
        first, second = slow.transaction(), slower.transaction()
        await first.start()
        await second.start()
        await slow.execute(LETTERS, 1, PROPERTIES, "t")
        await slower.execute(LETTERS, 1, PROPERTIES, "t")
        await slow.execute(LETTERS, 1, PROPERTIES, "t")
        store(database, 1)
        assert await seen(feed, db) == [4]
        await first.commit()
        assert await seen(feed, db) == [1, 3]
        assert feed.position == "4;2-2"
        await second.commit()
        assert await seen(feed, db) == [2]


async def test_many_letters_come_in_pages_and_those_that_match_only(
    database: Database, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_feed, "PAGE", 10)
    feed = await from_now(db)
    store(database, 25, task="a")
    store(database, 1, task="b")
    assert await seen(feed, db, LetterFilter(task="b")) == []
    assert [await seen(feed, db) for _ in range(3)] == [[*range(11, 21)], [*range(21, 27)], []]


async def test_the_gaps_of_a_very_old_place_are_bounded() -> None:
    feed = LetterFeed(0)
    feed._advance([*range(2, 4_000, 2)])
    assert len(feed.gaps) == letter_feed.MAX_GAPS
    assert feed.gaps[-1] == Gap(3_997, 3_997)


@pytest.mark.parametrize("text", ["", "x", "5;", "5;1", "5;1-", "-1", "9" * 19, "1" + ";2-2" * 1_001])
async def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no position"):
        LetterFeed.at(text)
