"""Claims of jobs by workers: every transition between waiting and ended, each one guarded statement.

All calls take the caller's connection, work on whole batches, and tell which rows *we* changed. They
raise `DatabaseAwayError` when nothing is decided, and `StatementError` when Postgres refuses a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import asyncpg

from storage import claims_sql as sql
from storage.errors import StorageError, translate
from storage.pool import BY_KEY, connect_to_write
from storage.settings import StorageSettings

# A statement on a dead network ends here, so that leases are not forgotten for ever.
TIMEOUT_S = 10.0

OutcomeKind = Literal["succeeded", "retry", "dead", "crashed", "returned"]
# For annotations in packages that do not import the driver.
Connection = asyncpg.Connection

# Every statement here finds its rows by key.
PLANNING = "; ".join(f"SET {name} = {value}" for name, value in BY_KEY.items())


class StatementError(StorageError):
    """Postgres refused a value of this batch; the same batch would be refused again."""


@dataclass(frozen=True)
class Claim:
    """The wish to run one attempt of a job, or the right to: `token` is the fencing token."""

    job_id: str
    generation: int
    attempt: int
    token: UUID
    task: str = ""
    queue: str = ""


@dataclass(frozen=True)
class Waiting:
    """What is on record about the attempt that waits: its message can be made again."""

    retries: int = 0
    arguments: bytes | None = None  # JSON [args, kwargs, embed], if they changed
    options: bytes | None = None  # JSON, if they changed
    delay_ms: int = 0  # nominal
    waited_s: float = 0.0


@dataclass(frozen=True)
class JobRow:
    """What decides about an arriving message."""

    state: str
    generation: int
    attempt: int
    token: UUID | None
    lease_left_s: float  # negative once expired; 0 when not running
    waiting: Waiting | None = None
    task: str = ""
    begun: bool = True  # its run is on record as begun


@dataclass(frozen=True)
class Completion:
    """How a claimed attempt ended. Texts must be safe for Postgres (`storage.text.safe_text`)."""

    claim: Claim
    kind: OutcomeKind
    reason: str | None = None
    result: bytes | None = None
    exception_type: str | None = None
    message: str | None = None
    traceback: str | None = None
    delay_ms: int | None = None
    retries: int | None = None
    arguments: bytes | None = None
    options: bytes | None = None


@dataclass(frozen=True)
class Fate:
    """What the job row says after a change; `attempt` is the one that waits or runs, if any.

    `crashes` is told by a takeover only.
    """

    state: str
    generation: int
    attempt: int
    crashes: int = 0


async def connect_for_claims(settings: StorageSettings, name: str) -> asyncpg.Connection:
    """A connection for the calls below, as `storage.pool.connect_to_write` makes one."""
    connection = await connect_to_write(settings, name)
    try:
        await connection.execute(PLANNING, timeout=TIMEOUT_S)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def claim(
    connection: asyncpg.Connection, claims: Sequence[Claim], *, worker: str, lease_s: float
) -> set[UUID]:
    """Take the waiting jobs among `claims`; the tokens that won. A job must not be in the batch twice."""
    ordered = sorted(claims, key=_job_id)  # two workers then lock rows in one order
    tasks = [claim.task for claim in ordered]
    with refusals(f"claim {len(claims)} jobs"):
        rows = await connection.fetch(
            sql.CLAIM, *_columns(ordered), worker, lease_s, tasks, timeout=TIMEOUT_S
        )
    return {row["claim"] for row in rows}


async def adopt(
    connection: asyncpg.Connection, claims: Sequence[Claim], *, worker: str, lease_s: float
) -> set[UUID]:
    """Make and claim rows for jobs that have none: another Celery program published them."""
    ordered = sorted(claims, key=_job_id)
    tasks, queues = [claim.task for claim in ordered], [claim.queue for claim in ordered]
    with refusals(f"adopt {len(claims)} jobs"):
        rows = await connection.fetch(
            sql.ADOPT, *_columns(ordered), worker, lease_s, tasks, queues, timeout=TIMEOUT_S
        )
    return {row["claim"] for row in rows}


async def rows(connection: asyncpg.Connection, job_ids: Sequence[str]) -> dict[str, JobRow]:
    """The rows of those jobs that have one."""
    with refusals(f"read {len(job_ids)} jobs"):
        found = await connection.fetch(sql.ROWS, list(job_ids), timeout=TIMEOUT_S)
    return {
        row["id"]: JobRow(
            row["state"],
            row["generation"],
            row["attempt"],
            row["claim"],
            row["lease_left_s"],
            Waiting(
                row["retries"],
                row["retry_arguments"],
                row["retry_options"],
                row["delay_ms"],
                row["waited_s"],
            ),
            row["type"],
            row["begun"],
        )
        for row in found
    }


async def take_over(
    connection: asyncpg.Connection, new: Claim, lost: UUID, *, worker: str, lease_s: float, crash_bound: int
) -> Fate | None:
    """Take a job whose lease ran out; None: not ours to take.

    If its attempt is known to have begun, that attempt is lost: the next begins, or at the bound the job is
    dead. One that only waited in a lost worker's hands is no victim of its own: it begins here.
    """
    with refusals("take over a job"):
        row = await connection.fetchrow(
            sql.TAKE_OVER,
            new.job_id,
            lost,
            new.token,
            worker,
            crash_bound,
            lease_s,
            timeout=TIMEOUT_S,
        )
    return Fate(row["state"], row["generation"], row["attempt"], row["crashes"]) if row else None


async def believe(connection: asyncpg.Connection, new: Claim, *, worker: str, lease_s: float) -> bool:
    """Claim a job whose message is ahead of its row (a restored database); whether we did."""
    with refusals("claim a job ahead of its row"):
        row = await connection.fetchrow(
            sql.BELIEVE,
            new.job_id, new.generation, new.attempt, new.token, worker, lease_s,
            timeout=TIMEOUT_S,
        )  # fmt: skip
    return row is not None


async def complete(
    connection: asyncpg.Connection, completions: Sequence[Completion], *, crash_bound: int
) -> dict[UUID, Fate]:
    """Record how attempts ended. A token missing from the answer has lost its job to another worker."""
    ordered = sorted(completions, key=lambda completion: completion.claim.job_id)
    columns = [
        [done.claim.job_id for done in ordered],
        [done.claim.token for done in ordered],
        [done.kind for done in ordered],
        [done.reason for done in ordered],
        [done.result for done in ordered],
        [done.exception_type for done in ordered],
        [done.message for done in ordered],
        [done.traceback for done in ordered],
        [done.delay_ms for done in ordered],
        [done.retries for done in ordered],
        [done.arguments for done in ordered],
        [done.options for done in ordered],
    ]
    with refusals(f"complete {len(ordered)} jobs"):
        changed = await connection.fetch(sql.COMPLETE, *columns, crash_bound, timeout=TIMEOUT_S)
        if len(changed) < len(ordered):
            told = {row["token"] for row in changed}
            rest = [done.claim for done in ordered if done.claim.token not in told]
            changed += await connection.fetch(
                sql.RECORDED,
                [claim.job_id for claim in rest], [claim.token for claim in rest],
                timeout=TIMEOUT_S,
            )  # fmt: skip
    return {row["token"]: Fate(row["state"], row["generation"], row["attempt"]) for row in changed}


async def renew(
    connection: asyncpg.Connection, held: Sequence[tuple[Claim, float | None]], *, lease_s: float
) -> set[UUID]:
    """Renew leases; the tokens that still hold their job.

    Args:
        held: each claim with the seconds that its run may still take (time limit + grace), or None while
            it has not started.
    """
    with refusals(f"renew {len(held)} leases"):
        rows = await connection.fetch(
            sql.RENEW,
            [claim.job_id for claim, _ in held],
            [claim.token for claim, _ in held],
            [limit for _, limit in held],
            lease_s,
            timeout=TIMEOUT_S,
        )
    return {row["claim"] for row in rows}


async def record_begin(connection: asyncpg.Connection, job_id: str, token: UUID, limit_s: float) -> bool:
    """Put on record that a run begins, which may take `limit_s` seconds; False if the job is not ours."""
    with refusals("record a begin"):
        tag = await connection.execute(sql.BEGIN, job_id, token, limit_s, timeout=TIMEOUT_S)
    return bool(tag == "UPDATE 1")


async def bury(connection: asyncpg.Connection, waiting: Sequence[tuple[str, int, int, str]]) -> set[str]:
    """End jobs whose next attempt can never be published: (job id, generation, attempt, error) of each.

    The ids that are DEAD now; a job that has gone on meanwhile is left alone.
    """
    columns = [list(column) for column in zip(*sorted(waiting), strict=True)]
    with refusals(f"bury {len(waiting)} jobs"):
        rows = await connection.fetch(sql.BURY, *columns, timeout=TIMEOUT_S)
    return {row["id"] for row in rows}


async def set_progress(connection: asyncpg.Connection, job_id: str, token: UUID, progress: bytes) -> bool:
    """Write a running job's progress (JSON); False if the claim no longer holds it."""
    with refusals("write progress"):
        tag = await connection.execute(sql.PROGRESS, job_id, token, progress, timeout=TIMEOUT_S)
    return bool(tag == "UPDATE 1")


def _job_id(claim: Claim) -> str:
    return claim.job_id


def _columns(claims: Sequence[Claim]) -> tuple[list[str], list[int], list[int], list[UUID]]:
    return (
        [claim.job_id for claim in claims],
        [claim.generation for claim in claims],
        [claim.attempt for claim in claims],
        [claim.token for claim in claims],
    )


@contextmanager
def refusals(what: str) -> Iterator[None]:
    """Errors of the driver become `DatabaseAwayError` or `StatementError`."""
    try:
        with translate(what):
            yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StatementError(f"{what}: {type(error).__name__}: {error}") from error
