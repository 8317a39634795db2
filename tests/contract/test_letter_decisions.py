"""Decisions about what a filter finds: never about more letters than were seen."""

from __future__ import annotations

import asyncpg

from storage.discards import DISCARD, decide_all, estimate
from storage.letter_filter import LetterFilter
from tests.support import background
from tests.support.databases import Database
from tests.support.letter_rows import prepare, store


def test_a_letter_that_allows_it_only_since_it_was_seen_is_left_alone(database: Database) -> None:
    prepare(database)
    store(database, 4)
    database.execute("update redrive.dead_letters set state = 'discarded' where id = 4")
    wanted = LetterFilter(queue="q")

    async def work() -> list[int]:
        connection = await asyncpg.connect(database.url, timeout=10)
        try:
            found = await estimate(connection, DISCARD, wanted)
            assert (found.letters, found.left_out) == (3, {"discarded already": 1})
            await connection.execute("update redrive.dead_letters set state = 'open' where id = 4")
            return [
                number
                async for number in decide_all(connection, DISCARD, wanted, found=found, by="ada", why="n")
            ]
        finally:
            await connection.close()

    assert background.run(work()) == [3]
    rows = database.fetch("select state from redrive.dead_letters order by id")
    assert [row["state"] for row in rows] == ["discarded", "discarded", "discarded", "open"]
