"""What an imported letter is in the database that it comes to."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import asyncpg
import pytest

from storage import exports, letters
from storage.exports import export
from storage.imports import Imported, Importer
from storage.letter_filter import LetterFilter
from storage.letter_line import LetterLine, parse
from storage.pool import Pool
from tests.support import letter_rows
from tests.support.databases import Database, fresh_database
from tests.support.servers import Servers

pytestmark = pytest.mark.anyio
EVERYTHING = LetterFilter()
VIEW: dict[str, Any] = {"headers": {}, "deaths": [], "properties": {}, "header_types": ()}


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    letter_rows.prepare(database)
    async with asyncpg.create_pool(database.url, min_size=1, max_size=2) as made:
        yield made


@pytest.fixture
async def other(servers: Servers, template_database: str) -> AsyncIterator[tuple[Database, Pool]]:
    with fresh_database(servers.urls.database, template_database) as database:
        async with asyncpg.create_pool(database.url, min_size=1, max_size=2) as made:
            yield database, made


def store(database: Database, count: int) -> None:
    letter_rows.store(database, count)
    database.execute("update redrive.dead_letters set body_sha256 = sha256(body), identity = sha256(body)")


async def exported(pool: Pool, wanted: LetterFilter = EVERYTHING) -> list[LetterLine]:
    async with pool.acquire() as connection, aclosing(export(connection, wanted)) as found:
        return [parse(b"".join(letter.line(VIEW))) async for letter in found]


def item(database: Database, letter: int, state: str, outcome: str | None = None) -> None:
    database.execute(
        "with p as (insert into redrive.replays (requested_by) values ('ada') returning id)"
        " insert into redrive.replay_items (token, replay_id, position, letter_id, target, state, outcome,"
        " decided_at) select 'token-' || $1::bigint, id, 1, $1, 'q', $2, $3,"
        " case when $2 in ('staged', 'publishing') or $2 = 'published' and $3::text is null then null"
        " else now() end from p",
        letter, state, outcome,
    )  # fmt: skip


async def test_a_letter_that_was_sent_perhaps_is_not_open_to_be_sent_twice(
    database: Database, pool: Pool, other: tuple[Database, Pool]
) -> None:
    store(database, 7)
    cases: tuple[tuple[str, str, str | None], ...] = (
        ("replaying", "staged", None), ("replaying", "publishing", None), ("replayed", "published", None),
        ("replayed", "unknown", "unknown"), ("replayed", "published", "succeeded"),
    )  # fmt: skip
    for letter, (state, of_item, outcome) in enumerate(cases, start=1):
        database.execute("update redrive.dead_letters set state = $2 where id = $1", letter, state)
        item(database, letter, of_item, outcome)
    database.execute("update redrive.dead_letters set state = 'quarantined' where id = 6")
    database.execute("update redrive.dead_letters set state = 'discarded' where id = 7")
    there, target = other
    assert await Importer(target, by="eve", note="").store(await exported(pool)) == Imported(7, 0)
    states = [row["state"] for row in there.fetch("select state from redrive.dead_letters order by id")]
    assert states == ["open", "replayed", "replayed", "replayed", "replayed", "quarantined", "discarded"]
    undecided = await exported(target, LetterFilter(undecided=True))
    assert [line.id for line in undecided] == [1, 2, 3, 4, 6]
    # Should one of these messages die again, its letter is told by the token that it was sent with.
    tokens = "select letter_id, token from redrive.replay_items order by 1"
    assert there.fetch(tokens) == [{"letter_id": n, "token": f"token-{n}"} for n in (2, 3, 4)]
    plans = there.fetch("select state, finished_at is null as open from redrive.replays")
    assert plans == [{"state": "done", "open": False}]


async def test_copies_stay_copies_and_one_without_its_original_stands_alone(
    database: Database, pool: Pool, other: tuple[Database, Pool]
) -> None:
    store(database, 4)
    database.execute(
        "update redrive.dead_letters set duplicate_of = 1, possible_duplicate = true where id > 2"
    )
    lines = await exported(pool)
    there, target = other
    importer = Importer(target, by="eve", note="")
    rows = "select state, duplicate_of, possible_duplicate from redrive.dead_letters order by id"
    await importer.store([lines[3]])
    assert there.fetch(rows) == [{"state": "open", "duplicate_of": None, "possible_duplicate": True}]
    there.empty()
    # In one batch, and in a later one of another run.
    await Importer(target, by="eve", note="").store(lines[:3])
    there.execute("update redrive.dead_letters set state = 'discarded' where id = 1")
    assert await Importer(target, by="eve", note="").store(lines) == Imported(1, 3)
    assert there.fetch(rows) == [
        {"state": "discarded", "duplicate_of": None, "possible_duplicate": False},
        {"state": "open", "duplicate_of": None, "possible_duplicate": False},
        {"state": "discarded", "duplicate_of": 1, "possible_duplicate": True},
        {"state": "discarded", "duplicate_of": 1, "possible_duplicate": True},
    ]
    assert there.value("select letters from redrive.groups") == 2


async def test_a_group_is_counted_and_nothing_that_was_decided_about_it_changes(
    database: Database, pool: Pool, other: tuple[Database, Pool]
) -> None:
    store(database, 3)
    database.execute("update redrive.dead_letters set stored_at = now() - id * interval '1 day'")
    database.execute("insert into redrive.group_states (fingerprint, rule) values ('g', 1)")
    lines = await exported(pool)
    there, target = other
    letter_rows.prepare(there)
    there.execute("update redrive.groups set letters = 5")
    there.execute("insert into redrive.group_states (fingerprint, state, rule) values ('g', 'resolved', 2)")
    await Importer(target, by="eve", note="").store(lines)
    (group,) = there.fetch(
        "select letters, s.state, s.rule, g.first_seen < now() - interval '2 days' as old,"
        " g.last_seen > now() - interval '1 day' as fresh"
        " from redrive.groups g join redrive.group_states s using (fingerprint)"
    )
    # By rule 1: `dlq groups regroup` looks at it again.
    assert group == {"letters": 8, "state": "resolved", "rule": 1, "old": True, "fresh": True}
    assert there.value("select sum(letters)::int from redrive.group_counts") == 3
    assert there.value("select count(*) from redrive.alerts") == 0
    # So long after the import as others after the drain.
    assert there.value("select min(stored_at) > now() - interval '1 hour' from redrive.dead_letters")


async def test_a_dead_job_without_a_letter_has_the_imported_one(
    database: Database, pool: Pool, other: tuple[Database, Pool]
) -> None:
    store(database, 3)
    for letter, job in ((1, "a"), (2, "b"), (3, "c")):
        database.execute("update redrive.dead_letters set job_id = $2 where id = $1", letter, job)
    there, target = other
    for job, state, generation in (("a", "DEAD", 1), ("b", "DEAD", 2), ("c", "SUCCEEDED", 1)):
        there.execute(
            "insert into redrive.jobs (id, type, queue, state, generation) values ($1, 't', 'q', $2, $3)",
            job, state, generation,
        )  # fmt: skip
    await Importer(target, by="eve", note="").store(await exported(pool))
    jobs = there.fetch("select id, state, letter_id from redrive.jobs order by id")
    assert jobs == [
        {"id": "a", "state": "DEAD", "letter_id": 1},
        {"id": "b", "state": "DEAD", "letter_id": None},
        {"id": "c", "state": "SUCCEEDED", "letter_id": None},
    ]


async def test_letters_that_went_on_to_a_third_database_are_known_there(
    database: Database, pool: Pool, other: tuple[Database, Pool], servers: Servers, template_database: str
) -> None:
    store(database, 2)
    first = await exported(pool)
    there, target = other
    there.execute("select nextval(pg_get_serial_sequence('redrive.dead_letters', 'id'))")
    await Importer(target, by="eve", note="").store(first)
    second = await exported(target)
    assert [(line.id, line.origin.id) for line in second] == [(2, 1), (3, 2)]
    with fresh_database(servers.urls.database, template_database) as third:
        async with asyncpg.create_pool(third.url, min_size=1, max_size=2) as last:
            importer = Importer(last, by="eve", note="")
            assert await importer.store(second) == Imported(2, 0)
            assert await importer.store(first) == Imported(0, 2)
            assert (await letters.dossier(last, 1)).marks.imported_from == 1
    assert await Importer(pool, by="eve", note="").store(second) == Imported(0, 2)


async def test_an_export_is_of_one_moment_and_holds_few_letters_at_a_time(
    database: Database, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(database, 30)
    monkeypatch.setattr(exports, "BATCH_LETTERS", 7)
    async with pool.acquire() as connection, aclosing(export(connection, LetterFilter())) as found:
        got = [await anext(found)]
        database.execute("update redrive.dead_letters set state = 'discarded'")
        letter_rows.store(database, 3)
        got += [letter async for letter in found]
    assert [(each.letter.id, each.letter.state) for each in got] == [(n, "open") for n in range(1, 31)]
    assert all(hashlib.sha256(each.body).digest() == each.letter.body_sha256 for each in got)
