"""The statements of claims on a real Postgres, two claims against one row."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from storage import claims
from storage.claims import Claim, Completion, Fate
from tests.support.claimed import LEASE_S, a_claim, expire, insert, over, row, running, take
from tests.support.databases import Database

pytestmark = pytest.mark.anyio


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    made = await asyncpg.connect(database.url)
    yield made
    await made.close()


async def complete(connection: asyncpg.Connection, claim: Claim, kind: Any = "succeeded") -> Fate | None:
    done = await claims.complete(connection, [Completion(claim, kind, retries=1)], crash_bound=3)
    return done.get(claim.token)


# Claim


@pytest.mark.parametrize("state", ["PENDING", "QUEUED", "RETRYING"])
async def test_a_waiting_job_is_claimed_by_one_of_two(connection: asyncpg.Connection, state: str) -> None:
    job = await insert(connection, state)
    first, second = a_claim(job), a_claim(job)
    assert (await take(connection, first), await take(connection, second)) == (True, False)
    found = await row(connection, job)
    assert (found["state"], found["claim"], found["worker"]) == ("RUNNING", first.token, "w")
    assert 0 < found["left_s"] <= LEASE_S


@pytest.mark.parametrize(("generation", "attempt"), [(1, 3), (2, 2), (2, 4), (3, 3), (1, 4)])
async def test_a_claim_of_another_attempt_or_generation_wins_nothing(
    connection: asyncpg.Connection, generation: int, attempt: int
) -> None:
    job = await insert(connection, "RETRYING", generation=2, attempt=3)
    assert not await take(connection, a_claim(job, generation, attempt))
    assert (await row(connection, job))["state"] == "RETRYING"


@pytest.mark.parametrize("state", ["DEAD", "SUCCEEDED", "CANCELLED"])
async def test_an_ended_job_cannot_be_claimed(connection: asyncpg.Connection, state: str) -> None:
    job = await insert(connection, state)
    assert not await take(connection, a_claim(job))
    assert (await row(connection, job))["state"] == state


# Take-over


async def test_a_live_lease_is_not_taken_over(connection: asyncpg.Connection) -> None:
    held = await running(connection)
    assert await over(connection, a_claim(held.job_id), held.token) is None
    assert (await row(connection, held.job_id))["claim"] == held.token


async def test_an_expired_lease_is_taken_over_by_one_of_two(connection: asyncpg.Connection) -> None:
    held = await running(connection)
    await expire(connection, held)
    first, second = a_claim(held.job_id), a_claim(held.job_id)
    assert await over(connection, first, held.token) == Fate("RUNNING", 1, 1)
    assert await over(connection, second, held.token) is None
    assert (await row(connection, held.job_id))["claim"] == first.token


async def test_an_attempt_that_had_begun_is_counted_and_dead_at_the_bound(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    assert await claims.record_begin(connection, held.job_id, held.token, 60)
    await expire(connection, held)
    new = a_claim(held.job_id)
    assert await over(connection, new, held.token, crash_bound=2) == Fate("RUNNING", 1, 2, crashes=1)
    assert await claims.record_begin(connection, held.job_id, new.token, 60)
    await expire(connection, held)
    last = await over(connection, a_claim(held.job_id), new.token, crash_bound=2)
    assert last == Fate("DEAD", 1, 2, crashes=2)
    assert (await row(connection, held.job_id))["reason"] == "worker_lost"


# Completion


async def test_an_attempt_that_crashed_comes_again_and_is_dead_at_the_bound(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    for number in (1, 2):
        assert await complete(connection, held, "crashed") == Fate("RETRYING", 1, number + 1)
        held = a_claim(held.job_id, 1, number + 1)
        assert await take(connection, held)
    assert await complete(connection, held, "crashed") == Fate("DEAD", 1, 3)
    assert (await row(connection, held.job_id))["crashes"] == 3


async def test_arguments_of_a_retry_stay_on_record_when_its_attempt_is_lost(
    connection: asyncpg.Connection,
) -> None:
    """Whoever sends the job again would else send those of its first attempt."""
    first = await running(connection)
    retry = Completion(first, "retry", retries=1, arguments=b"[[2], {}, {}]", options=b'{"priority": 3}')
    await claims.complete(connection, [retry], crash_bound=3)
    second = a_claim(first.job_id, 1, 2)
    assert await take(connection, second)
    await claims.complete(connection, [Completion(second, "crashed")], crash_bound=3)
    found = await row(connection, first.job_id)
    assert (found["attempt"], found["retries"]) == (3, 1)
    assert (found["retry_arguments"], found["retry_options"]) == (b"[[2], {}, {}]", b'{"priority": 3}')


@pytest.mark.parametrize("kind", ["succeeded", "retry", "dead", "crashed", "returned"])
async def test_a_stale_token_records_nothing(connection: asyncpg.Connection, kind: str) -> None:
    stale = await running(connection)
    await expire(connection, stale)
    new = a_claim(stale.job_id)
    await over(connection, new, stale.token)
    before = dict(await row(connection, stale.job_id))
    assert await complete(connection, stale, kind) is None
    after = dict(await row(connection, stale.job_id))
    assert before | {"left_s": 0} == after | {"left_s": 0}


@pytest.mark.parametrize(
    ("kind", "fate"),
    [
        ("succeeded", Fate("SUCCEEDED", 1, 1)),
        ("retry", Fate("RETRYING", 1, 2)),
        ("dead", Fate("DEAD", 1, 1)),
        ("crashed", Fate("RETRYING", 1, 2)),
        ("returned", Fate("QUEUED", 1, 1)),
    ],
)
async def test_the_end_of_an_attempt_is_recorded_once(
    connection: asyncpg.Connection, kind: str, fate: Fate
) -> None:
    held = await running(connection)
    assert await complete(connection, held, kind) == fate
    found = await row(connection, held.job_id)
    assert (found["state"], found["claim"]) == (fate.state, None)


@pytest.mark.parametrize("kind", ["succeeded", "retry", "dead"])
async def test_a_completion_whose_answer_was_lost_is_found_again(
    connection: asyncpg.Connection, kind: str
) -> None:
    held = await running(connection)
    first = await complete(connection, held, kind)
    assert first is not None
    assert await complete(connection, held, kind) == first
    assert await connection.fetchval("select retries from redrive.jobs where id = $1", held.job_id) == 1


async def test_a_recorded_attempt_of_an_older_generation_is_not_found_again(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    await complete(connection, held, "dead")
    await connection.execute(
        "update redrive.jobs set generation = 2, state = 'QUEUED' where id = $1", held.job_id
    )
    assert await complete(connection, held, "dead") is None


async def test_one_of_a_batch_is_stale_and_the_other_is_recorded(connection: asyncpg.Connection) -> None:
    good, stale = await running(connection), await running(connection)
    await connection.execute("update redrive.jobs set claim = $2 where id = $1", stale.job_id, uuid4())
    done = await claims.complete(
        connection, [Completion(good, "succeeded"), Completion(stale, "succeeded")], crash_bound=3
    )
    assert done == {good.token: Fate("SUCCEEDED", 1, 1)}


# Renewal


async def renewed(connection: asyncpg.Connection, claim: Claim, limit_s: float | None) -> bool:
    return claim.token in await claims.renew(connection, [(claim, limit_s)], lease_s=LEASE_S)


async def test_a_lease_is_renewed_in_full(connection: asyncpg.Connection) -> None:
    held = await running(connection)
    await expire(connection, held)
    assert await renewed(connection, held, None)
    assert (await row(connection, held.job_id))["left_s"] > LEASE_S - 5


async def test_no_renewal_moves_a_lease_past_its_cap(connection: asyncpg.Connection) -> None:
    held = await running(connection)
    assert await renewed(connection, held, 5)
    assert 0 < (await row(connection, held.job_id))["left_s"] <= 5
    cap = (await row(connection, held.job_id))["lease_cap"]
    assert await renewed(connection, held, 500)
    found = await row(connection, held.job_id)
    assert (found["lease_cap"], found["lease_until"]) == (cap, cap)


async def test_a_wrong_token_renews_nothing(connection: asyncpg.Connection) -> None:
    held = await running(connection)
    await expire(connection, held)
    assert not await renewed(connection, a_claim(held.job_id), None)
    assert (await row(connection, held.job_id))["left_s"] < 0


# Belief


@pytest.mark.parametrize(
    ("generation", "attempt", "ahead"),
    [(2, 3, False), (2, 2, False), (1, 9, False), (2, 4, True), (3, 1, True)],
)
async def test_only_a_message_ahead_of_its_row_is_believed(
    connection: asyncpg.Connection, generation: int, attempt: int, ahead: bool
) -> None:
    job = await insert(connection, "RETRYING", generation=2, attempt=3)
    new = a_claim(job, generation, attempt)
    assert await claims.believe(connection, new, worker="w", lease_s=LEASE_S) is ahead
    found = await row(connection, job)
    expected = (generation, attempt, "RUNNING") if ahead else (2, 3, "RETRYING")
    assert (found["generation"], found["attempt"], found["state"]) == expected


@pytest.mark.parametrize(("state", "believed"), [("DEAD", True), ("SUCCEEDED", False), ("CANCELLED", False)])
async def test_an_ended_job_is_believed_only_if_it_is_dead(
    connection: asyncpg.Connection, state: str, believed: bool
) -> None:
    job = await insert(connection, state)
    assert await claims.believe(connection, a_claim(job, 1, 2), worker="w", lease_s=LEASE_S) is believed


async def test_a_job_that_runs_under_a_live_lease_is_not_believed_away(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    new = a_claim(held.job_id, 1, 2)
    assert not await claims.believe(connection, new, worker="w", lease_s=LEASE_S)
    await expire(connection, held)
    assert await claims.believe(connection, new, worker="w", lease_s=LEASE_S)


async def test_a_replay_that_is_ahead_of_its_row_may_crash_as_often_as_any(
    connection: asyncpg.Connection,
) -> None:
    job = await insert(connection, "DEAD")
    await connection.execute("update redrive.jobs set crashes = 3 where id = $1", job)
    new = a_claim(job, 2, 1)
    assert await claims.believe(connection, new, worker="w", lease_s=LEASE_S)
    assert await complete(connection, new, "crashed") == Fate("RETRYING", 2, 2)


# Burial


async def test_only_the_attempt_that_waits_for_a_message_is_buried(connection: asyncpg.Connection) -> None:
    """A job that was replayed, or went on, meanwhile has another message."""
    job = await insert(connection, "RETRYING", generation=2, attempt=3)
    for generation, attempt in ((1, 3), (2, 2), (2, 4)):
        assert await claims.bury(connection, [(job, generation, attempt, "no")]) == set()
    held = await running(connection)
    assert await claims.bury(connection, [(held.job_id, 1, 1, "no")]) == set()
    assert await claims.bury(connection, [(job, 2, 3, "too large")]) == {job}
    found = await row(connection, job)
    assert (found["state"], found["error"]) == ("DEAD", "too large")


# Adoption


async def test_a_row_is_made_by_one_of_two(connection: asyncpg.Connection) -> None:
    first, second = a_claim("new"), a_claim("new")
    assert await claims.adopt(connection, [first], worker="w", lease_s=LEASE_S) == {first.token}
    assert await claims.adopt(connection, [second], worker="w", lease_s=LEASE_S) == set()
    assert (await row(connection, "new"))["claim"] == first.token
