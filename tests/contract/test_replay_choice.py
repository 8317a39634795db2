"""Which letters a plan takes, as letters are edited and come in meanwhile, against a real database."""

from __future__ import annotations

import functools
import json
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from storage import (
    discards,
    job_actions,
    letter_edits,
    replay_plans,
    replay_selection,
    replay_steps,
    replays,
    retention,
)
from storage.errors import MigrationError
from storage.job_actions import JobActionRefusedError, Who
from storage.letter_edits import NewEdit
from storage.letter_filter import LetterFilter
from storage.pool import Pool
from storage.replay_fitness import Fitness
from storage.replay_picks import Plan
from storage.replay_selection import HELD_BYTES, survey
from storage.replays import Asked, ReplayRefusedError
from tests.support import letter_rows
from tests.support.databases import Database
from topology.republish import why_in_vain
from topology.wire import properties

pytestmark = pytest.mark.anyio
ALL = LetterFilter(queue="q")
JSON = properties(content_type="application/json", content_encoding="utf-8").encode()
LARGE_HEADERS = properties(headers={"task": "t", "h": "v" * 200_000}).encode()
# Letters like the one there is, of this reason.
AGAIN = (
    "insert into redrive.dead_letters (session_id, dlq, queue, properties, body, exchange, routing_key,"
    " body_sha256, body_size, has_identity, task, fingerprint, dead_at, target, reason, identity)"
    " select session_id, dlq, queue, properties, body, exchange, routing_key, body_sha256, body_size, true,"
    " task, fingerprint, dead_at, target, {}, int8send(n + 1000)"
    " from redrive.dead_letters, generate_series(1::bigint, $1) n"
)
IN_VAIN = functools.partial(why_in_vain, largest=131_052, now=datetime.now(UTC))


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    letter_rows.prepare(database)
    async with asyncpg.create_pool(database.url, min_size=1, max_size=2) as made:
        yield made


def protocol_1(expires: str | None, text: str = "") -> bytes:
    fields: dict[str, Any] = {
        "id": "x",
        "task": "t",
        "args": [text],
        "kwargs": {},
        "expires": expires,
        "retries": 0,
    }
    return json.dumps(fields | {"eta": None, "utc": True}).encode()


EXPIRED, IN_TIME = protocol_1("2020-01-01T00:00:00+00:00"), protocol_1(None)


def store(database: Database, raw: bytes, body: bytes) -> None:
    letter_rows.store_as(database, raw, body)
    database.execute("update redrive.dead_letters set target = 'q'")


async def edit(pool: Pool, raw: bytes, body: bytes, last: int | None = None) -> int:
    return await letter_edits.store(pool, 1, NewEdit("m", raw, body, [], "x"), by="ada", last=last)


async def told(pool: Pool, fitness: Fitness) -> tuple[int, list[str]]:
    """The same by filter and by id, and of the plan."""
    by_filter, by_id = await survey(pool, ALL, fitness), await survey(pool, [1], fitness)
    assert by_filter == by_id
    async with pool.acquire() as connection, connection.transaction():
        found = await replay_selection.unfit(connection, [1], fitness)
    assert [each.kind_words for each in found] == list(by_id.left_out)
    return by_id.letters, list(by_id.left_out)


async def test_the_edit_in_force_is_what_expires(database: Database, pool: Pool) -> None:
    fitness = Fitness(in_vain=IN_VAIN)
    store(database, JSON, EXPIRED)
    letters, (why,) = await told(pool, fitness)
    assert (letters, "expired" in why) == (0, True)
    await edit(pool, JSON, IN_TIME)
    assert await told(pool, fitness) == (1, [])
    await replays.create(pool, [1], Asked("me"), fitness)
    database.execute("update redrive.dead_letters set state = 'open'")
    database.execute("delete from redrive.replay_items")
    await letter_edits.withdraw(pool, 1, by="ada")
    letters, (why,) = await told(pool, fitness)
    assert (letters, "expired" in why) == (0, True)


async def test_the_edit_in_force_is_what_may_be_too_large(database: Database, pool: Pool) -> None:
    fitness = Fitness(largest_body=1_000, in_vain=IN_VAIN)
    too_large = "too large to be sent: its body is over 1000 bytes"
    store(database, LARGE_HEADERS, b"x" * 1_001)
    assert await told(pool, fitness) == (0, [too_large])
    last = await edit(pool, JSON, b"small")
    assert await told(pool, fitness) == (1, [])
    last = await edit(pool, LARGE_HEADERS, b"small", last)
    letters, (why,) = await told(pool, fitness)
    assert (letters, "one frame" in why) == (0, True)
    await edit(pool, JSON, b"x" * 1_001, last)
    database.execute("update redrive.dead_letters set body = 'x', body_size = 1")
    assert await told(pool, fitness) == (0, [too_large])
    with pytest.raises(ReplayRefusedError, match="too large"):
        await replays.create(pool, [1], Asked("me"), fitness)


async def test_letters_are_judged_on_the_schema_before_edits(database: Database, pool: Pool) -> None:
    store(database, JSON, EXPIRED)
    database.execute("drop table redrive.letter_edits, redrive.letter_actions cascade")
    letters, (why,) = await told(pool, Fitness(in_vain=IN_VAIN, largest_body=1_000))
    assert (letters, "expired" in why) == (0, True)


async def test_a_letter_that_comes_while_others_are_counted_is_not_counted_in_part(
    database: Database, pool: Pool
) -> None:
    store(database, JSON, EXPIRED)

    class Interrupted(asyncpg.Connection):
        async def fetch(self, query: str, *args: Any, **kwargs: Any) -> Any:
            rows = await super().fetch(query, *args, **kwargs)
            if "GROUP BY" in query:
                database.execute(AGAIN.format("'delivery_limit'"), 1)
            return rows

    connection = await asyncpg.connect(database.url, connection_class=Interrupted)
    try:
        selection = await survey(connection, ALL, Fitness(in_vain=IN_VAIN))
    finally:
        await connection.close()
    assert (dict(selection.fit), list(selection.left_out.values())) == ({}, [1])
    assert database.value("select count(*) from redrive.dead_letters") == 2


async def test_what_is_held_of_bodies_is_bounded(database: Database, pool: Pool) -> None:
    store(database, JSON, protocol_1(None, "x" * (HELD_BYTES // 8)))
    database.execute(AGAIN.format("reason"), 24)
    seen = 0

    def judge(raw: bytes, body: bytes) -> str | None:
        nonlocal seen
        seen += len(body)
        return None

    tracemalloc.start()
    try:
        selection = await survey(pool, ALL, Fitness(in_vain=judge))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (selection.letters, seen > 3 * HELD_BYTES) == (25, True)
    assert peak < 2 * HELD_BYTES


async def test_of_a_body_that_says_nothing_nothing_is_read(database: Database, pool: Pool) -> None:
    store(database, LARGE_HEADERS, b"x" * 1_000)
    read = []
    await survey(pool, ALL, Fitness(in_vain=lambda raw, body: read.append((len(raw), body))))
    assert read == [(len(LARGE_HEADERS), b"")]


async def test_sent_to_another_queue_a_letter_without_one_is_the_newest_of_its_job(
    database: Database, pool: Pool
) -> None:
    letter_rows.store(database, 2)
    database.execute("insert into redrive.jobs (id, type, queue, state) values ('j', 't', 'q', 'DEAD')")
    database.execute("update redrive.dead_letters set job_id = 'j', target = case id when 1 then 'q' end")
    fitness = Fitness(to="q")
    assert (await survey(pool, ALL, fitness)).letters == 1
    made = await replays.create(pool, ALL, Asked("me"), fitness)
    items, _ = await replay_plans.items(pool, made.id)
    assert [item.letter_id for item in items] == [2]


async def test_a_second_letter_of_a_job_in_one_plan_is_told_as_such(database: Database, pool: Pool) -> None:
    letter_rows.store(database, 2)
    database.execute("update redrive.dead_letters set target = 'q'")
    made = await replays.create(pool, [1, 2], Asked("me"))
    database.execute("insert into redrive.jobs (id, type, queue, state) values ('j', 't', 'q', 'DEAD')")
    database.execute("update redrive.dead_letters set job_id = 'j'")
    step = await replay_steps.stage(pool, Plan(made.id, None), limit=10)
    assert (len(step.outgoing), step.failed) == (1, 1)
    items, _ = await replay_plans.items(pool, made.id)
    assert [item.detail for item in items if item.state == "failed"] == [
        "another letter of this replay is of the same job j"
    ]


async def test_a_named_letter_that_cannot_be_replayed_refuses_all_in_what_is_told_before(
    database: Database, pool: Pool
) -> None:
    letter_rows.store(database, 2)
    database.execute("update redrive.dead_letters set target = 'q'")
    database.execute("update redrive.dead_letters set state = 'discarded' where id = 2")
    cases = (([1, 2], False, True), ([1, 2], True, False), ([1], False, False), (ALL, False, False))
    for choice, skip, refused in cases:
        assert replays.refuses(choice, await survey(pool, choice), skip_unfit=skip) is refused


async def test_a_breaker_that_is_insisted_on_is_refused_on_the_schema_before(
    database: Database, pool: Pool
) -> None:
    letter_rows.store(database, 1)
    database.execute("update redrive.dead_letters set target = 'q'")
    database.execute("drop table redrive.replay_terms")
    with pytest.raises(MigrationError, match="a breaker needs"):
        await replays.create(pool, [1], Asked("me", breaker=3, insists=True))
    await replays.create(pool, [1], Asked("me", breaker=None, insists=True))


async def test_a_job_whose_letter_has_expired_is_not_retried_for_ever(database: Database, pool: Pool) -> None:
    letter_rows.store(database, 1)
    database.execute(
        "insert into redrive.jobs (id, type, queue, state, letter_id, finished_at)"
        " values ('j', 't', 'q', 'DEAD', 1, now() - interval '30 days')"
    )
    database.execute("update redrive.dead_letters set job_id = 'j', stored_at = now() - interval '30 days'")
    await discards.decide(pool, discards.DISCARD, [1], by="ada")
    database.execute("update redrive.letter_actions set at = now() - interval '30 days'")
    assert (await retention.expire(pool, "discarded", days=7, batch=10)).gone == 1
    async with pool.acquire() as connection:
        with pytest.raises(JobActionRefusedError, match="deleted") as refused:
            await job_actions.retry(connection, "j", Who("ada", "", None))
        assert not refused.value.soon
        database.execute("update redrive.jobs set finished_at = now()")
        with pytest.raises(JobActionRefusedError, match="not stored yet") as refused:
            await job_actions.retry(connection, "j", Who("ada", "", None))
        assert refused.value.soon


async def test_a_retry_counts_laps(database: Database, pool: Pool) -> None:
    letter_rows.store(database, 1)
    database.execute(
        "insert into redrive.jobs (id, type, queue, state, letter_id, generation)"
        " values ('j', 't', 'q', 'DEAD', 1, 4)"
    )
    database.execute("update redrive.dead_letters set job_id = 'j', target = 'q'")
    async with pool.acquire() as connection:
        with pytest.raises(ReplayRefusedError, match="replayed 3 times"):
            await job_actions.retry(connection, "j", Who("ada", "", None), Fitness(most_laps=3))
        await job_actions.retry(connection, "j", Who("ada", "", None), Fitness(most_laps=4))
