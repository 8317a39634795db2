"""A plan as it is made and carried out, step by step, against a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from storage import replay_control, replay_outcomes, replay_plans, replay_selection, replay_steps, replays
from storage.letter_filter import LetterFilter
from storage.pool import Pool
from storage.replay_fitness import Fitness
from storage.replay_picks import BATCH_BYTES, Plan
from storage.replays import Asked, NothingToReplayError, ReplayRefusedError
from tests.support import letter_rows
from tests.support.databases import Database
from tests.support.waiting import eventually

pytestmark = pytest.mark.anyio
WAITING = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = $1"


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    letter_rows.prepare(database)
    async with asyncpg.create_pool(database.url, min_size=1, max_size=2) as made:
        yield made


def letters(database: Database, count: int) -> None:
    letter_rows.store(database, count)
    database.execute("update redrive.dead_letters set target = 'q'")


async def test_a_batch_is_bounded_in_bytes_and_holds_one_letter_at_least(
    database: Database, pool: Pool
) -> None:
    letters(database, 5)
    sizes = (BATCH_BYTES * 3, BATCH_BYTES // 2, BATCH_BYTES // 2, 10, 10)
    for letter, size in enumerate(sizes, start=1):
        database.execute("update redrive.dead_letters set body_size = $2 where id = $1", letter, size)
    made = await replays.create(pool, [1, 2, 3, 4, 5], Asked("me"))
    batches = []
    while not (step := await replay_steps.stage(pool, Plan(made.id, None), limit=100)).is_empty:
        batches.append([item.letter_id for item in step.outgoing])
        await replay_steps.published(pool, [item.token for item in step.outgoing])
    assert batches == [[1], [2, 3], [4, 5]]


async def test_whoever_pauses_waits_for_the_batch_that_is_being_staged(
    database: Database, pool: Pool
) -> None:
    letters(database, 1)
    database.execute("insert into redrive.jobs (id, type, queue, state) values ('j', 't', 'q', 'DEAD')")
    database.execute("update redrive.dead_letters set job_id = 'j'")
    made = await replays.create(pool, [1], Asked("me"))

    async def until_waiting(count: int) -> None:
        await asyncio.to_thread(
            eventually, lambda: database.value(WAITING, database.name) >= count, 20, f"{count} wait"
        )

    blocker = await asyncpg.connect(database.url)
    try:
        await blocker.execute("begin; select from redrive.jobs for update")
        staging = asyncio.create_task(replay_steps.stage(pool, Plan(made.id, None), limit=1))
        await until_waiting(1)
        pausing = asyncio.create_task(replay_control.pause(pool, made.id, by="ada"))
        await until_waiting(2)
    finally:
        await blocker.close()
    assert len((await staging).outgoing) == 1
    assert dict((await pausing).figures.states) == {"publishing": 1}


async def test_paused_nothing_is_staged_and_nothing_is_open(database: Database, pool: Pool) -> None:
    letters(database, 4)
    made = await replays.create(pool, [1, 2, 3, 4], Asked("me"))
    plan = Plan(made.id, None)
    assert len((await replay_steps.stage(pool, plan, limit=1)).outgoing) == 1
    paused = await replay_control.pause(pool, made.id, by="ada")
    assert dict(paused.figures.states) == {"publishing": 1, "staged": 3}
    assert (await replay_steps.stage(pool, plan, limit=1)).is_empty
    assert [each.id for each in await replay_steps.open_plans(pool)] == []
    await replay_control.resume(pool, made.id, by="ada")
    assert [each.id for each in await replay_steps.open_plans(pool)] == [made.id]


async def test_a_cancelled_plan_is_brought_to_its_end_by_the_executor(database: Database, pool: Pool) -> None:
    """As when whoever cancelled it was killed after its first statement."""
    letters(database, 3)
    made = await replays.create(pool, [1, 2, 3], Asked("me"))
    plan = Plan(made.id, None)
    (first,) = (await replay_steps.stage(pool, plan, limit=1)).outgoing
    database.execute("update redrive.replays set state = 'cancelled' where id = $1::uuid", made.id)
    # Not sent after all: nothing sends it now.
    await replay_steps.unsent(pool, [first.token])
    assert [each.id for each in await replay_steps.open_plans(pool)] == [made.id]
    step = await replay_steps.stage(pool, plan, limit=10)
    assert (step.outgoing, step.dropped) == ([], 3)
    assert (await replay_steps.stage(pool, plan, limit=10)).is_empty
    assert await replay_steps.open_plans(pool) == []
    states = database.fetch("select distinct state from redrive.dead_letters")
    assert [row["state"] for row in states] == ["open"]


async def test_named_letters_are_sent_in_the_order_given_and_a_limit_counts_those_that_fit(
    database: Database, pool: Pool
) -> None:
    letters(database, 5)
    database.execute("update redrive.dead_letters set state = 'discarded' where id = 4")
    asked = Asked("me", limit=2, skip_unfit=True)
    made = await replays.create(pool, [5, 4, 5, 1, 2, 99], asked)
    items, _ = await replay_plans.items(pool, made.id)
    assert [(item.position, item.letter_id) for item in items] == [(1, 5), (2, 1)]
    with pytest.raises(NothingToReplayError):
        await replays.create(pool, LetterFilter(queue="none"), Asked("me"))
    with pytest.raises(ValueError, match="0 letters"):
        await replays.create(pool, [], Asked("me"))


async def test_a_refusal_names_each_letter_with_its_reason(database: Database, pool: Pool) -> None:
    letters(database, 6)
    database.execute("update redrive.dead_letters set body_size = 11 where id = 1")
    database.execute("update redrive.dead_letters set target = 'gone' where id = 2")
    database.execute("update redrive.dead_letters set target = null where id = 3")
    database.execute("update redrive.dead_letters set duplicate_of = 6 where id = 4")
    fitness = Fitness(refused={"gone": "there is no queue gone"}, largest_body=10)
    with pytest.raises(ReplayRefusedError) as refused:
        await replays.create(pool, [6, 5, 4, 3, 2, 1], Asked("me"), fitness)
    assert {each.letter_id: each.why for each in refused.value.refusals} == {
        1: "it is too large to be sent: its body is over 10 bytes",
        2: "there is no queue gone",
        3: "its history does not tell which queue of this vhost it came from",
        4: "it is a duplicate of letter 6: replay that one",
    }
    selection = await replay_selection.survey(pool, LetterFilter(), fitness)
    assert (selection.letters, sum(selection.left_out.values())) == (2, 4)
    elsewhere = await replay_selection.survey(pool, [2, 3], Fitness(to="q", refused=fitness.refused))
    assert dict(elsewhere.fit) == {("q", "t", "exception"): 2}


async def test_a_canary_and_laps_are_asked_for_in_vain_on_the_schema_before(
    database: Database, pool: Pool
) -> None:
    letters(database, 2)
    for table in ("replay_laps", "replay_terms"):
        database.execute(f"drop table redrive.{table}")
    with pytest.raises(Exception, match="storage migrate"):
        await replays.create(pool, [1], Asked("me", canary=1))
    made = await replays.create(pool, [1], Asked("me"), Fitness(most_laps=1))
    with pytest.raises(Exception, match="storage migrate"):
        await replay_control.pause(pool, made.id, by="ada")
    assert await replay_control.judge(pool) == []
    (plan,) = await replay_steps.open_plans(pool)
    assert len((await replay_steps.stage(pool, plan, limit=10)).outgoing) == 1
    assert (await replay_plans.get(pool, made.id)).as_json()["events"] == []


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
async def test_a_letter_that_may_have_arrived_before_stays_in_doubt_when_it_is_not_sent_by_force(
    database: Database, pool: Pool, ending: str
) -> None:
    letters(database, 1)
    first = await replays.create(pool, [1], Asked("me"))
    (sent,) = (await replay_steps.stage(pool, Plan(first.id, None), limit=1)).outgoing
    await replay_steps.unknown(pool, [sent.token], "the confirm was lost")
    with pytest.raises(ReplayRefusedError, match=f"replay {first.id} of it may have arrived"):
        await replays.create(pool, [1], Asked("me"))
    again = await replays.create(pool, [1], Asked("me"), Fitness(force=True))
    if ending == "cancelled":
        await replay_control.cancel(pool, again.id, by="ada")
    else:
        (sent,) = (await replay_steps.stage(pool, Plan(again.id, None), limit=1)).outgoing
        await replay_steps.failed(pool, sent.token, "there is no queue q")
    assert database.value("select state from redrive.dead_letters") == "replayed"


async def test_only_what_is_decided_since_it_was_resumed_trips_a_breaker(
    database: Database, pool: Pool
) -> None:
    letters(database, 12)
    made = await replays.create(pool, list(range(1, 9)), Asked("me", breaker=2))
    database.execute("update redrive.dead_letters set fingerprint = 'g' where id > 8")
    plan = Plan(made.id, None)

    async def die(count: int, outcome: str = "died_again") -> None:
        step = await replay_steps.stage(pool, plan, limit=count)
        tokens = [item.token for item in step.outgoing]
        await replay_steps.published(pool, tokens)
        database.execute(
            "update redrive.replay_items set outcome = $2, decided_at = clock_timestamp(),"
            " next_letter_id = case when $2 = 'died_again' then 9 end where token = any($1::text[])",
            tokens, outcome,
        )  # fmt: skip

    await die(2, "succeeded")
    await die(2)
    assert await replay_control.judge(pool) == []  # two of four: not more than half
    await die(1)
    (verdict,) = await replay_control.judge(pool)
    assert (verdict.paused, verdict.why) == (True, "breaker: 3 of 5 letters of group g died again as before")
    await replay_control.resume(pool, made.id, by="ada")
    assert await replay_control.judge(pool) == []
    await die(1)
    assert await replay_control.judge(pool) == []
    await die(1)
    assert [verdict.paused for verdict in await replay_control.judge(pool)] == [True]
    await replay_control.resume(pool, made.id, by="ada")
    await die(1)
    assert await replay_control.judge(pool) == []  # nothing is left that could be spared


async def test_confirmed_letters_are_written_down_beside_whoever_locks_letters_by_id(
    database: Database, pool: Pool
) -> None:
    letters(database, 2)
    made = await replays.create(pool, [1, 2], Asked("me"))
    await replay_steps.stage(pool, Plan(made.id, None), limit=2)
    # The tokens are in the other order than the letters.
    database.execute("update redrive.replay_items set token = (3 - letter_id)::text")
    other = await asyncpg.connect(database.url)
    try:
        await other.execute("begin; select from redrive.dead_letters where id = 1 for update")
        writing = asyncio.create_task(replay_steps.published(pool, ["1", "2"]))
        await asyncio.to_thread(eventually, lambda: database.value(WAITING, database.name) >= 1, 20)
        # Had letter 2 been taken before letter 1, these two would wait for each other.
        await other.execute("select from redrive.dead_letters where id = 2 for update")
        await other.execute("commit")
    finally:
        await other.close()
    await writing
    assert dict((await replay_plans.get(pool, made.id)).figures.states) == {"published": 2}


async def test_outcomes_are_decided_beside_whoever_stores_what_came_back(
    database: Database, pool: Pool
) -> None:
    letters(database, 2)
    database.execute(
        "insert into redrive.jobs (id, type, queue, state) select 'j' || n, 't', 'q', 'DEAD'"
        " from generate_series(1, 2) n"
    )
    database.execute("update redrive.dead_letters set job_id = 'j' || id")
    made = await replays.create(pool, [2, 1], Asked("me"))
    sent = (await replay_steps.stage(pool, Plan(made.id, None), limit=2)).outgoing
    await replay_steps.published(pool, [item.token for item in sent])
    database.execute("update redrive.replay_items set token = letter_id::text")
    database.execute("update redrive.jobs set state = 'SUCCEEDED'")
    other = await asyncpg.connect(database.url)
    try:
        await other.execute("begin; select from redrive.replay_items where token = '1' for update")
        deciding = asyncio.create_task(replay_outcomes.decide(pool, foreign_after_s=60))
        await asyncio.to_thread(eventually, lambda: database.value(WAITING, database.name) >= 1, 20)
        await other.execute("select from redrive.replay_items where token = '2' for update")
        await other.execute("commit")
    finally:
        await other.close()
    await deciding
    assert dict((await replay_plans.get(pool, made.id)).figures.outcomes) == {"succeeded": 2}


async def test_an_operator_s_pause_does_not_end_a_canary(database: Database, pool: Pool) -> None:
    letters(database, 4)
    made = await replays.create(pool, [1, 2, 3, 4], Asked("me", canary=2))
    plan = Plan(made.id, None)
    assert len((await replay_steps.stage(pool, plan, limit=1)).outgoing) == 1
    await replay_control.pause(pool, made.id, by="ada")
    await replay_control.resume(pool, made.id, by="ada")
    assert len((await replay_steps.stage(pool, plan, limit=9)).outgoing) == 1
    database.execute(
        "update redrive.replay_items set state = 'failed', decided_at = now() where state = 'publishing'"
    )
    assert [verdict.paused for verdict in await replay_control.judge(pool)] == [True]
    await replay_control.resume(pool, made.id, by="ada")
    assert len((await replay_steps.stage(pool, plan, limit=9)).outgoing) == 2


async def test_what_went_to_a_stranger_s_queue_is_not_concluded_to_be_consumed(
    database: Database, pool: Pool
) -> None:
    """Only for a letter's own queue and a work queue is it known where the message would die."""
    letters(database, 3)
    for letter, to in ((1, None), (2, "theirs"), (3, "orders")):
        made = await replays.create(pool, [letter], Asked("me"), Fitness(to=to))
        (sent,) = (await replay_steps.stage(pool, Plan(made.id, None), limit=1)).outgoing
        await replay_steps.published(pool, [sent.token])
    database.execute("update redrive.replay_items set published_at = now() - interval '1 minute'")
    assert set(await replay_outcomes.traceless(pool, ["orders"])) == {"q", "orders"}
    done = {
        queue: await replay_outcomes.consumed(pool, queue, ["orders"], older_s=30)
        for queue in ("q", "theirs", "orders")
    }
    assert done == {"q": 1, "theirs": 0, "orders": 1}
