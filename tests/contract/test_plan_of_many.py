"""A plan of many letters reads each a few times, however little the server knows of its tables."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg
import pytest

from storage import replays
from tests.support import background, letter_rows
from tests.support.databases import Database, fresh_database
from tests.support.servers import Servers
from tests.support.waiting import eventually
from topology.wire import properties

LETTERS = 4_000


# As the drain has just stored them: nobody has counted these tables.
FILL = (
    letter_rows.LETTERS.replace(" dead_at)", " dead_at, job_id, target)").replace(
        "'g', now() from", "'g', now(), 'job-' || n, 'q' from"
    ),
    "insert into redrive.jobs (id, type, queue, state)"
    " select job_id, 't', 'q', 'DEAD' from redrive.dead_letters",
)


@pytest.fixture
def database(servers: Servers, template_database: str) -> Iterator[Database]:
    with fresh_database(servers.urls.database, template_database) as made:
        letter_rows.prepare(made)
        made.execute(FILL[0], LETTERS, properties(headers={"h": "x" * 2_000}).encode(), "t")
        made.execute(FILL[1])
        yield made


async def _plan(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await replays.create(connection, list(range(1, LETTERS + 1)), replays.Asked("test"))
    finally:
        await connection.close()  # and tells what it read


def test_named_letters_of_jobs_are_each_looked_for_by_their_job(database: Database) -> None:
    read = (
        "select coalesce(sum(idx_tup_read), 0)::int from pg_stat_user_indexes where relname = 'dead_letters'"
    )
    background.run(_plan(database.url), 60)

    planned = "select count(*) from redrive.replay_items"
    assert database.value(planned) == LETTERS
    eventually(lambda: database.value(read) > LETTERS, 30, "the server tells what was read")
    assert database.value(read) < 50 * LETTERS, "not all for each"
