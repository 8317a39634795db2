"""What comes into a group while its letters are regrouped."""

from __future__ import annotations

import asyncpg

from dlq_consumer.regrouping import group_now, regroup
from storage import regrouping
from tests.support import background
from tests.support.databases import Database
from tests.support.letter_rows import prepare, store


def test_letters_that_are_imported_meanwhile_are_looked_at_by_the_next_run(database: Database) -> None:
    """They may be of an older rule; those of a drain are not."""
    prepare(database)
    store(database, 3)
    database.execute("update redrive.groups set letters = 3")

    async def work() -> None:
        pool = await asyncpg.create_pool(database.url, min_size=1, max_size=1)
        try:
            (old,) = await regrouping.old_groups(pool)
            letters = await regrouping.batch(pool, old.fingerprint, after=0, upto=2, limit=500)
            await pool.execute("insert into redrive.imported_letters (letter_id, old_id) values (3, 7)")
            await regrouping.move(
                pool, old.fingerprint, {each.id: group_now(each) for each in letters}, position=2, last=True,
                by="ada",
            )  # fmt: skip
            (left,) = await regrouping.old_groups(pool)
            assert (left.fingerprint, left.position, left.letters) == (old.fingerprint, 2, 1)
            await regroup(pool, left, by="ada")
            assert await regrouping.old_groups(pool) == []
        finally:
            await pool.close()

    background.run(work())
    (group,) = database.fetch("select * from redrive.groups where letters > 0")
    assert (group["letters"], len(group["fingerprint"])) == (3, 32)
