"""Jobs' rows and claims on them, straight in Postgres."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import asyncpg

from storage import claims
from storage.claims import Claim, Fate

LEASE_S = 30.0


async def insert(connection: asyncpg.Connection, state: str = "QUEUED", **columns: int) -> str:
    values: dict[str, object] = {"id": str(uuid4()), "type": "t", "queue": "work", "state": state, **columns}
    places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
    await connection.execute(
        f"insert into redrive.jobs ({', '.join(values)}) values ({places})", *values.values()
    )
    return str(values["id"])


async def row(connection: asyncpg.Connection, job: str) -> Any:
    return await connection.fetchrow(
        "select *, extract(epoch from lease_until - now())::float8 as left_s from redrive.jobs where id = $1",
        job,
    )


def a_claim(job: str, generation: int = 1, attempt: int = 1) -> Claim:
    return Claim(job, generation, attempt, uuid4(), "t", "work")


async def take(connection: asyncpg.Connection, claim: Claim) -> bool:
    return claim.token in await claims.claim(connection, [claim], worker="w", lease_s=LEASE_S)


async def running(connection: asyncpg.Connection) -> Claim:
    """A job that the returned claim holds."""
    claim = a_claim(await insert(connection))
    assert await take(connection, claim)
    return claim


async def expire(connection: asyncpg.Connection, claim: Claim) -> None:
    await connection.execute(
        "update redrive.jobs set lease_until = now() - interval '1 second' where id = $1", claim.job_id
    )


async def over(connection: asyncpg.Connection, new: Claim, lost: UUID, crash_bound: int = 3) -> Fate | None:
    return await claims.take_over(
        connection, new, lost, worker="other", lease_s=LEASE_S, crash_bound=crash_bound
    )
