"""What becomes of a message whose job's lease has run out, by how far leases can be trusted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import asyncpg
import pytest

from tests.support.claimed import expire, row, running
from tests.support.databases import Database
from topology.delivery import TaskMessage
from topology.spec import WorkQueue
from workers.arrival import Arrival
from workers.claiming import Around, Run, Terms, decide

pytestmark = pytest.mark.anyio
TERMS = Terms("other", lease_s=30, crash_bound=3)


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    made = await asyncpg.connect(database.url)
    yield made
    await made.close()


def arrival_of(job: str) -> Arrival:
    task = TaskMessage(job, "t", [], {}, {}, 2)
    return Arrival(cast(Any, None), task, WorkQueue("work"), b"", b"", session=1, limit_s=60)


async def test_after_an_outage_no_expired_lease_is_believed_for_a_while(
    connection: asyncpg.Connection,
) -> None:
    held = await running(connection)
    await expire(connection, held)
    arrival = arrival_of(held.job_id)

    ((_, meanwhile),) = await decide(connection, [arrival], TERMS, doubt_s=9.0)
    assert meanwhile == Around(9.0)
    assert (await row(connection, held.job_id))["claim"] == held.token

    ((_, then),) = await decide(connection, [arrival], TERMS, doubt_s=0.0)
    assert then == Run(arrival.attempt, suspect=True)
    assert (await row(connection, held.job_id))["claim"] == arrival.token
