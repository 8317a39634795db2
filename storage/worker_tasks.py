"""Which tasks workers know: a rejected message of any other was unknown to the worker that had it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from storage.claims import TIMEOUT_S, Connection, refusals
from storage.errors import translate
from storage.pool import AnyConnection, Pool
from storage.schema import has_table

# A worker says so with each renewal of its leases. A letter may be stored a while after it was rejected.
SEEN_S = 3_600.0

_SAY = """
INSERT INTO redrive.worker_tasks AS w (worker, queues, tasks) VALUES ($1, $2, $3)
ON CONFLICT (worker) DO UPDATE SET queues = excluded.queues, tasks = excluded.tasks, seen_at = now()
"""
_FORGET = "DELETE FROM redrive.worker_tasks WHERE seen_at < now() - $1 * interval '1 second'"
_END = """
INSERT INTO redrive.worker_ends AS e (worker) VALUES ($1) ON CONFLICT (worker) DO UPDATE SET ended_at = now()
"""
_FORGET_ENDS = "DELETE FROM redrive.worker_ends WHERE ended_at < now() - $1 * interval '1 second'"
_KNOWN = """
SELECT tasks FROM redrive.worker_tasks
WHERE queues && $1::text[] AND seen_at >= now() - $2 * interval '1 second'
"""


@dataclass(frozen=True)
class Registered:
    """The tasks of one worker, and the queues that it consumes."""

    queues: tuple[str, ...]
    tasks: tuple[str, ...]


async def say(connection: Connection, worker: str, registered: Registered) -> None:
    """Put it on record, or renew it. Nothing on the schema of the release before.

    Raises:
        DatabaseAwayError, StatementError
    """
    with refusals("say which tasks are registered"):
        if await has_table(connection, "worker_tasks", timeout_s=TIMEOUT_S):
            await connection.execute(
                _SAY, worker, list(registered.queues), list(registered.tasks), timeout=TIMEOUT_S
            )
            await connection.execute(_FORGET, SEEN_S, timeout=TIMEOUT_S)


async def end(connection: Connection, worker: str, *, timeout_s: float) -> None:
    """This worker stops in order: it is not lost. Nothing on the schema of the release before.

    Raises:
        DatabaseAwayError, StatementError
    """
    with refusals("say that a worker has ended"):
        if await has_table(connection, "worker_ends", timeout_s=timeout_s):
            await connection.execute(_END, worker, timeout=timeout_s)
            await connection.execute(_FORGET_ENDS, SEEN_S, timeout=timeout_s)


async def known(pool: Pool | AnyConnection, queues: Collection[str]) -> frozenset[str] | None:
    """The tasks that every worker of these queues has registered; None where no worker has said so.

    Raises:
        DatabaseAwayError
    """
    with translate("read which tasks are registered"):
        if not queues or not await has_table(pool, "worker_tasks"):
            return None
        rows = await pool.fetch(_KNOWN, list(queues), SEEN_S)
    sets = [frozenset(row["tasks"]) for row in rows]
    return frozenset.intersection(*sets) if sets else None
