"""Which letters go, when, and what is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from storage import discards, group_counts, replay_plans, replay_selection, retention
from storage.discards import DISCARD
from storage.letter_actions import ActionRefusedError
from storage.pool import Pool
from storage.replay_fitness import Fitness, Unfit
from storage.retention import Decided
from tests.support import letter_rows
from tests.support.databases import Database

pytestmark = pytest.mark.anyio
AGO = "now() - interval '40 days'"


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    letter_rows.prepare(database)
    async with asyncpg.create_pool(database.url, min_size=1, max_size=2) as made:
        yield made


def letters(database: Database, count: int, *, days: int = 40) -> None:
    letter_rows.store(database, count)
    database.execute("update redrive.dead_letters set stored_at = now() - make_interval(days => $1)", days)


def replayed(
    database: Database, letter: int, state: str, outcome: str | None, decided: str = AGO, *,
    running: bool = False,
) -> None:  # fmt: skip
    plan = (
        "with p as (insert into redrive.replays (state, requested_by, finished_at)"
        f" values ('done', 'ada', {'null' if running else 'now()'}) returning id)"
    )
    database.execute(
        f"{plan} insert into redrive.replay_items"
        " (token, replay_id, position, letter_id, target, state, outcome, decided_at)"
        f" select gen_random_uuid()::text, id, 1, $1, 'q', $2, $3, {decided} from p",
        letter, state, outcome,
    )  # fmt: skip
    database.execute("update redrive.dead_letters set state = 'replayed' where id = $1", letter)


def discarded(database: Database, letter: int, at: str = AGO) -> None:
    database.execute("update redrive.dead_letters set state = 'discarded' where id = $1", letter)
    database.execute(
        "insert into redrive.letter_actions (letter_id, action, by, at, details)"
        f" values ($1, 'discard', 'ada', {at}, '{{\"was\": \"open\"}}')",
        letter,
    )


async def sweep(pool: Pool, *, batch: int = 2) -> int:
    gone = 0
    states: tuple[Decided, ...] = ("discarded", "replayed")
    for state in states:
        after: int | None = 0
        while after is not None:
            step = await retention.expire(pool, state, days=30, batch=batch, after=after)
            gone, after = gone + step.gone, step.after
    return gone


def left(database: Database) -> list[int]:
    return [row["id"] for row in database.fetch("select id from redrive.dead_letters order by id")]


async def test_decided_letters_go_and_undecided_ones_stay_however_old(database: Database, pool: Pool) -> None:
    letters(database, 15)
    for letter, outcome in enumerate(("succeeded", "died_again", "cancelled", "consumed"), start=1):
        replayed(database, letter, "published", outcome)
    replayed(database, 5, "unknown", "unknown")
    replayed(database, 6, "published", None, decided="null")
    replayed(database, 7, "published", "succeeded", decided="now() - interval '20 days'")
    discarded(database, 8)
    discarded(database, 9, "now() - interval '20 days'")
    database.execute("update redrive.dead_letters set state = 'quarantined' where id = 10")
    database.execute("update redrive.dead_letters set state = 'replaying' where id = 11")
    # The replay of these is not over: it is paused, say.
    replayed(database, 12, "published", "succeeded", running=True)
    replayed(database, 13, "failed", None, running=True)
    discarded(database, 13)
    # Replayed in the database from which it was imported.
    database.execute("update redrive.dead_letters set state = 'replayed' where id = 14")
    assert await sweep(pool) == 6
    assert left(database) == [5, 6, 7, 9, 10, 11, 12, 13, 15]
    assert await sweep(pool) == 0


async def test_a_letter_that_was_sent_again_by_force_is_decided_by_what_came_of_that(
    database: Database, pool: Pool
) -> None:
    letters(database, 3)
    for letter in (1, 2, 3):
        replayed(database, letter, "unknown", "unknown", "now() - interval '50 days'")
    replayed(database, 2, "published", "consumed")
    replayed(database, 3, "cancelled", None)
    doubted = {each.letter_id: each.kind for each in await unfit(pool, force=False)}
    assert doubted == {1: "doubtful", 2: "state", 3: "doubtful"}
    assert {each.letter_id: each.kind for each in await unfit(pool, force=True)} == {2: "state"}
    with pytest.raises(ActionRefusedError, match="letter 2 was replayed"):
        await discards.decide(pool, DISCARD, [1, 2, 3], by="ada", why="no")
    assert await sweep(pool) == 1
    assert left(database) == [1, 3]


async def unfit(pool: Pool, *, force: bool) -> list[Unfit]:
    async with pool.acquire() as connection:
        return await replay_selection.unfit(connection, [1, 2, 3], Fitness(to="q", force=force))


async def test_a_replay_keeps_its_numbers_when_its_letters_go(database: Database, pool: Pool) -> None:
    letters(database, 5)
    fates = ("succeeded", "succeeded", "died_again", None, "succeeded")
    for letter, outcome in enumerate(fates, start=1):
        replayed(database, letter, "published" if outcome else "failed", outcome)
    database.execute("update redrive.replay_items set decided_at = now() where letter_id = 5")
    database.execute(
        "update redrive.replay_items set position = letter_id,"
        " replay_id = (select id from redrive.replays limit 1)"
    )
    assert await sweep(pool, batch=1) == 4
    found, _ = await replay_plans.page(pool)
    (plan,) = [each for each in found if each.letters]
    shown = (await replay_plans.get(pool, plan.id)).as_json()
    assert (shown["letters"], shown["expired"]) == (5, {"died_again": 1, "failed": 1, "succeeded": 2})
    items, _ = await replay_plans.items(pool, plan.id)
    assert [item.letter_id for item in items] == [5]


async def test_old_alerts_go_unless_they_are_still_to_be_sent(database: Database, pool: Pool) -> None:
    states = ("pending", "sending", "delivered", "no_channel", "given_up", "snoozed")
    for state in states:
        for age in ("40 days", "20 days"):
            database.execute(
                "insert into redrive.alerts (fingerprint, kind, letter_id, state, created_at)"
                " values ('g', 'first_seen', 1, $1, now() - $2::text::interval)", state, age,
            )  # fmt: skip
    database.execute(
        "insert into redrive.alert_deliveries (alert_id, channel) select id, 'c' from redrive.alerts"
    )
    gone = [await retention.expire_alerts(pool, days=30, batch=3) for _ in range(3)]
    assert gone == [3, 1, 0]
    old = "select state from redrive.alerts where created_at < now() - interval '30 days' order by state"
    assert [row["state"] for row in database.fetch(old)] == ["pending", "sending"]
    assert database.value("select count(*) from redrive.alert_deliveries") == len(states) + 2


async def test_hours_that_no_list_shows_become_one_of_each_queue(database: Database, pool: Pool) -> None:
    database.execute(
        "insert into redrive.group_hours (fingerprint, hour, dlq, letters)"
        " select 'g', now() - n * interval '1 day', 'q' || n % 2, n from generate_series(80, 99) n"
    )
    sums = "select dlq, sum(letters)::int as n from redrive.group_hours group by dlq order by dlq"
    was = database.fetch(sums)
    assert [await group_counts.fold_old_hours(pool, batch=batch) for batch in (4, 100, 100)] == [4, 6, 0]
    assert database.fetch(sums) == was
    # Of the last 90 days, and one for each queue.
    assert database.value("select count(*) from redrive.group_hours") == 10 + 2


async def test_all_that_belongs_to_a_letter_goes_with_it(database: Database, pool: Pool) -> None:
    letters(database, 3)
    database.execute("update redrive.dead_letters set duplicate_of = 1 where id = 2")
    database.execute(
        "insert into redrive.jobs (id, type, queue, state, letter_id) values ('j', 't', 'q', 'DEAD', 1)"
    )
    database.execute("update redrive.dead_letters set job_id = 'j' where id < 3")
    database.execute("insert into redrive.canvas_letters (letter_id) values (1)")
    database.execute("insert into redrive.redacted_letters (letter_id, paths) values (1, '{body.a}')")
    database.execute("insert into redrive.imported_letters (letter_id, old_id) values (1, 5)")
    database.execute(
        "insert into redrive.letter_edits (letter_id, message_id, properties, body) values (1, 'm', '', '')"
    )
    replayed(database, 1, "published", "died_again")
    database.execute(
        "insert into redrive.replayed_edits (token, edit_id) select token, 1 from redrive.replay_items"
    )
    assert database.fetch("select state from redrive.dead_letters where id = 2") == [{"state": "replayed"}]
    assert await sweep(pool) == 2
    assert left(database) == [3]
    job = database.fetch("select state, letter_id from redrive.jobs")
    assert job == [{"state": "DEAD", "letter_id": None}]
    assert database.fetch("select state, outcome, letters from redrive.expired_items") == [
        {"state": "published", "outcome": "died_again", "letters": 1}
    ]
    for table in ("letter_edits", "replayed_edits", "redacted_letters", "imported_letters", "canvas_letters"):
        assert (table, database.value(f"select count(*) from redrive.{table}")) == (table, 0)


async def test_what_is_busy_is_left_and_nobody_waits(database: Database, pool: Pool) -> None:
    letters(database, 2)
    database.execute("insert into redrive.jobs (id, type, queue, state) values ('j', 't', 'q', 'DEAD')")
    database.execute("update redrive.dead_letters set job_id = 'j' where id = 1")
    for letter in (1, 2):
        discarded(database, letter)
    busy = await asyncpg.connect(database.url)
    try:
        for lock in ("redrive.jobs where id = 'j'", "redrive.dead_letters where id = 2"):
            transaction = busy.transaction()
            await transaction.start()
            await busy.execute(f"select from {lock} for update")
            async with asyncio.timeout(20):
                await retention.expire(pool, "discarded", days=30, batch=1, after=0 if "jobs" in lock else 1)
            await transaction.rollback()
        assert left(database) == [1, 2]
    finally:
        await busy.close()
    assert await sweep(pool) == 2


async def test_a_letter_that_has_gone_is_known_again_to_later_sessions(
    database: Database, pool: Pool
) -> None:
    letters(database, 2)
    database.execute("update redrive.dead_letters set has_identity = false where id = 2")
    first, second = (
        row["identity"] for row in database.fetch("select identity from redrive.dead_letters order by id")
    )
    for letter in (1, 2):
        discarded(database, letter)
    await sweep(pool)
    async with pool.acquire() as connection:
        assert await retention.expired(connection, [first, second], 2) == {first}
        assert await retention.expired(connection, [first, second], 1) == set()
    database.execute("update redrive.expired_letters set expired_at = now() - interval '366 days'")
    await retention.forget(pool)
    assert database.value("select count(*) from redrive.expired_letters") == 0
