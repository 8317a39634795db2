"""Jobs that say RUNNING under nobody, on a real Postgres."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from storage import claims, replay_steps, replays
from storage.claims import Claim, Completion, StatementError
from storage.job_actions import Who, cancel
from storage.lost_jobs import LostJob, NewMessage, give_up
from storage.replay_picks import Plan
from storage.replays import Asked
from tests.support import letter_rows
from tests.support.claimed import a_claim, insert, row, running, take
from tests.support.databases import Database
from topology.headers import ATTEMPT, PUBLISH
from topology.spec import Topology, WorkQueue
from topology.wire import properties, split
from workers.sweeping import message_again

pytestmark = pytest.mark.anyio
TOPOLOGY = Topology((WorkQueue("work"),))
SILENT_S = 60.0


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    made = await asyncpg.connect(database.url)
    yield made
    await made.close()


async def silent(
    connection: asyncpg.Connection, claim: Claim, seconds: float, begun: bool = True, **columns: Any
) -> None:
    """Its lease, and the time that its run may take, ended so long ago."""
    columns |= {"origin": "celery"} if "payload" not in columns else {}
    for name, value in columns.items():
        await connection.execute(f"update redrive.jobs set {name} = $2 where id = $1", claim.job_id, value)
    await connection.execute(
        "update redrive.jobs set lease_until = now() - $2 * interval '1 second',"
        " lease_cap = case when $3 then now() - $2 * interval '1 second' end where id = $1",
        claim.job_id, seconds, begun,
    )  # fmt: skip


async def look(connection: asyncpg.Connection, crash_bound: int = 3) -> list[tuple[str, str, int, bool]]:
    found = await give_up(
        connection,
        silent_s=SILENT_S,
        crash_bound=crash_bound,
        message=lambda job: message_again(job, TOPOLOGY),
    )
    return [(job.id, job.state, job.attempt, sent) for job, sent in found]


async def attempt_of(connection: asyncpg.Connection, claim: Claim) -> Any:
    return await connection.fetchrow(
        "select outcome, reason, ended_at is not null as ended from redrive.attempts where claim = $1",
        claim.token,
    )


async def test_a_lost_job_waits_again_and_the_attempt_that_had_begun_counts(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    await silent(connection, held, SILENT_S + 5)
    assert await look(connection) == [(held.job_id, "RETRYING", 2, False)]
    found = await row(connection, held.job_id)
    assert (found["crashes"], found["claim"], found["lease_until"]) == (1, None, None)
    assert tuple(await attempt_of(connection, held)) == ("lost", "worker_lost", True)
    assert await look(connection) == []


async def test_a_claim_that_had_not_begun_is_given_back_uncounted(connection: asyncpg.Connection) -> None:
    held = await running(connection)
    await silent(connection, held, SILENT_S + 5, begun=False)
    assert await look(connection) == [(held.job_id, "QUEUED", 1, False)]
    assert (await row(connection, held.job_id))["crashes"] == 0
    assert tuple(await attempt_of(connection, held)) == ("returned", "worker_lost", True)


async def test_a_job_whose_worker_may_still_run_is_left_alone(connection: asyncpg.Connection) -> None:
    recent, long_run = await running(connection), await running(connection)
    await silent(connection, recent, SILENT_S - 30)
    await silent(connection, long_run, SILENT_S + 300)
    await connection.execute(
        "update redrive.jobs set lease_cap = now() + interval '5 minutes' where id = $1", long_run.job_id
    )
    assert await look(connection) == []


async def test_at_the_bound_it_is_dead_and_its_message_becomes_the_letter(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    await silent(connection, held, SILENT_S + 5, crashes=2, payload=b'{"x": 1}')
    assert await look(connection) == [(held.job_id, "DEAD", 1, True)]
    assert (await row(connection, held.job_id))["reason"] == "worker_lost"
    assert await connection.fetchval("select count(*) from redrive.outbox") == 1


async def test_a_job_whose_payload_is_known_is_sent_again_as_the_attempt_that_waits(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    changed = b'[[7], {"y": 2}, {}]'
    await silent(
        connection, held, SILENT_S + 5, payload=b'{"x": 1}', retries=4, retry_arguments=changed,
        retry_options=b'{"priority": 3}',
    )  # fmt: skip
    assert await look(connection) == [(held.job_id, "RETRYING", 2, True)]
    (sent,) = await connection.fetch("select * from redrive.outbox")
    properties = split(sent["properties"])
    assert (sent["job_id"], sent["queue"], sent["body"]) == (held.job_id, "work", changed)
    assert properties.get_header(ATTEMPT) == "1.2"
    assert properties.get_header(PUBLISH) == sent["token"]
    assert (properties.get_header("retries"), properties.priority) == (4, 3)


@pytest.mark.parametrize("edited", [None, b'[[], {"x": 5}, {}]'])
@pytest.mark.parametrize("crashed", [False, True])
async def test_a_replayed_job_is_sent_again_with_what_its_replay_sent(
    connection: asyncpg.Connection, database: Database, edited: bytes | None, crashed: bool
) -> None:
    """Its payload is what was submitted first: before `Task.retry` or an operator changed it."""
    held = await running(connection)
    dead = Completion(held, "dead", reason="exhausted")
    await claims.complete(connection, [dead], crash_bound=3)
    letter_rows.prepare(database)
    letter_rows.store_as(database, properties().encode(), b'[[7], {"x": 2}, {}]')
    await connection.execute("update redrive.dead_letters set job_id = $1, target = 'work'", held.job_id)
    await connection.execute("update redrive.jobs set letter_id = 1, retries = 4, retry_arguments = '[]'")
    if edited is not None:
        await connection.execute(
            "insert into redrive.letter_edits (letter_id, message_id, properties, body)"
            " values (1, 'm', '', $1)",
            edited,
        )
    async with asyncpg.create_pool(database.url, min_size=1, max_size=2) as pool:
        made = await replays.create(pool, [1], Asked("me"))
        step = await replay_steps.stage(pool, Plan(made.id, None), limit=1)
        await replay_steps.published(pool, [item.token for item in step.outgoing])

    again = a_claim(held.job_id, 2, 1)
    assert await take(connection, again)
    if crashed:
        await claims.complete(connection, [Completion(again, "crashed", reason="memory")], crash_bound=3)
        again = a_claim(held.job_id, 2, 2)
        assert await take(connection, again)
    await silent(connection, again, SILENT_S + 5, payload=b'{"x": 1}')
    assert await look(connection) == [(held.job_id, "RETRYING", 2 + crashed, True)]
    (sent,) = await connection.fetch("select * from redrive.outbox")
    assert sent["body"] == (edited or b'[[7], {"x": 2}, {}]')
    assert split(sent["properties"]).get_header("retries") == 0


@pytest.mark.parametrize("replayed", [b"\x1f\x8b", b'{"task": "t"}', b"[" * 100_000])
def test_a_replay_whose_arguments_cannot_be_read_is_not_made_up_from_the_payload(replayed: bytes) -> None:
    job = LostJob("j", "t", "work", "QUEUED", 2, 1, 0, None, None, b'{"x": 1}', replayed)
    assert message_again(job, TOPOLOGY) is None


async def test_a_first_attempt_is_sent_again_with_its_payload(connection: asyncpg.Connection) -> None:
    held = await running(connection)
    await silent(connection, held, SILENT_S + 5, begun=False, payload=b'{"x": 1}')
    assert await look(connection) == [(held.job_id, "QUEUED", 1, True)]
    body = json.loads(await connection.fetchval("select body from redrive.outbox"))
    assert body[:2] == [[], {"x": 1}]


async def test_a_lost_worker_that_comes_back_after_all_completes_nothing(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    await silent(connection, held, SILENT_S + 5)
    await look(connection)
    assert await claims.complete(connection, [Completion(held, "succeeded")], crash_bound=3) == {}
    assert (await row(connection, held.job_id))["state"] == "RETRYING"
    assert await claims.renew(connection, [(held, None)], lease_s=30) == set()


@pytest.mark.parametrize(("of_the_letter", "left_alone"), [(None, False), (1, False), (2, True), (3, True)])
async def test_a_job_whose_message_is_a_dead_letter_is_left_to_the_dead_letter_consumer(
    connection: asyncpg.Connection, of_the_letter: int | None, left_alone: bool
) -> None:
    """The letter of an earlier generation is that of a message that was replayed since."""
    held = await running(connection)
    await silent(connection, held, SILENT_S + 5, payload=b"{}", generation=2)
    await connection.execute(
        "insert into redrive.drain_sessions (cluster, vhost, queue, consumer) values ('c', '/', 'q', 'me')"
    )
    await connection.execute("insert into redrive.groups (fingerprint, queue, reason) values ('f', 'q', 'r')")
    await connection.execute(
        "insert into redrive.dead_letters (session_id, dlq, queue, reason, state, properties, body, exchange,"
        " routing_key, body_sha256, body_size, identity, has_identity, job_id, generation, fingerprint)"
        " select max(id), 'q.dlq', 'q', 'delivery_limit', 'open', '', '', '', '', '', 0, '', false, $1, $2,"
        " 'f'"
        " from redrive.drain_sessions",
        held.job_id,
        of_the_letter,
    )
    assert (await look(connection) == []) is left_alone


async def test_two_workers_that_look_at_once_find_a_job_once(
    connection: asyncpg.Connection, database: Database
) -> None:
    held = await running(connection)
    await silent(connection, held, SILENT_S + 5, payload=b"{}")
    other = await asyncpg.connect(database.url)
    try:
        async with other.transaction():
            await other.execute("select 1 from redrive.jobs where id = $1 for update", held.job_id)
            assert await look(connection) == []
    finally:
        await other.close()
    assert len(await look(connection)) == 1


async def test_nothing_is_changed_when_the_message_is_refused(connection: asyncpg.Connection) -> None:
    held = await running(connection)
    await silent(connection, held, SILENT_S + 5, payload=b"{}")

    def nonsense(job: LostJob) -> NewMessage:
        return NewMessage("a\x00b", b"", b"", str(uuid4()))

    with pytest.raises(StatementError):
        await give_up(connection, silent_s=SILENT_S, crash_bound=3, message=nonsense)
    assert (await row(connection, held.job_id))["state"] == "RUNNING"


async def test_a_message_that_waited_behind_a_long_queue_finds_its_job_waiting(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    await silent(connection, held, SILENT_S + 5)
    await look(connection)
    late = a_claim(held.job_id, 1, 1)
    assert await claims.claim(connection, [late], worker="w", lease_s=30) == set()
    assert await insert(connection)  # the batch of others goes on
    assert (await claims.rows(connection, [held.job_id]))[held.job_id].attempt == 2


async def test_a_message_made_again_keeps_the_expiry_and_the_priority_of_its_submission(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    await silent(connection, held, SILENT_S + 5, payload=b"{}")
    await connection.execute(
        "insert into redrive.job_options (job_id, expires, priority) values ($1, '2030-01-01Z', 7)",
        held.job_id,
    )
    assert await look(connection) == [(held.job_id, "RETRYING", 2, True)]
    raw = await connection.fetchval("select properties from redrive.outbox")
    properties = split(raw)
    assert (properties.headers_dict()["expires"], properties.priority) == ("2030-01-01T00:00:00+00:00", 7)


async def test_a_lost_job_that_was_asked_to_stop_is_cancelled_and_not_sent(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    assert await cancel(connection, held.job_id, Who("me", "", None)) is False
    await silent(connection, held, SILENT_S + 5, payload=b"{}")
    assert await look(connection) == [(held.job_id, "CANCELLED", 1, False)]
    assert await connection.fetchval("select count(*) from redrive.outbox") == 0
