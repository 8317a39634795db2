"""What people do with jobs: cancel them, have a dead one run again. Who, when, why and from where is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from storage import replays
from storage.errors import MigrationError, StorageError, translate
from storage.pool import AnyConnection
from storage.replay_fitness import ANY, Fitness
from storage.replay_plans import Replay
from storage.replays import Asked
from storage.schema import has_table, off_without_table
from storage.text import safe_text
from storage.times import shown_time

MAX_NOTE = 2_000
WAITING = ("PENDING", "QUEUED", "RETRYING")

# A message that a relay is publishing now is left to the worker, which acks it as a duplicate.
_CANCEL = """
WITH found AS (
    SELECT id, state, generation FROM redrive.jobs WHERE id = $1 FOR UPDATE
), cancelled AS (
    UPDATE redrive.jobs AS j
    SET state = 'CANCELLED', reason = 'cancelled', finished_at = now()
    FROM found WHERE j.id = found.id AND found.state IN ('PENDING', 'QUEUED', 'RETRYING')
    RETURNING j.id
), unsent AS (
    DELETE FROM redrive.outbox WHERE id IN (
        SELECT o.id FROM redrive.outbox o JOIN cancelled ON cancelled.id = o.job_id
        FOR UPDATE OF o SKIP LOCKED)
), noted AS (
    INSERT INTO redrive.job_actions (job_id, action, by, note, came_from, state, generation)
    SELECT id, 'cancel', $2, $3, $4, state, generation FROM found
    WHERE state IN ('PENDING', 'QUEUED', 'RETRYING') OR (state = 'RUNNING' AND NOT EXISTS (
        SELECT FROM redrive.job_actions a
        WHERE a.job_id = found.id AND a.action = 'cancel' AND a.generation = found.generation))
)
SELECT state FROM found
"""
_ASKED = """
SELECT EXISTS (SELECT FROM redrive.job_actions
               WHERE job_id = $1 AND action = 'cancel' AND generation = $2)
"""
_RETRY = """
INSERT INTO redrive.job_actions (job_id, action, by, note, came_from, state, generation, replay_id)
SELECT id, 'retry', $2, $3, $4, state, generation, $5::uuid FROM redrive.jobs WHERE id = $1
"""
# A letter that is not stored so long after the job's end is not awaited: retention may have taken it.
STORED_WITHIN_S = 3_600.0
_DEAD = """
SELECT state, letter_id, coalesce(finished_at > now() - make_interval(secs => $2), false) AS young
FROM redrive.jobs WHERE id = $1
"""
_LIST = """
SELECT action, at, by, note, came_from, state, generation, replay_id::text
FROM redrive.job_actions WHERE job_id = $1 ORDER BY id
"""


class JobActionRefusedError(StorageError):
    """The job's state does not allow it. `soon`: it will, in a moment."""

    def __init__(self, message: str, *, soon: bool = False) -> None:
        super().__init__(message)
        self.soon = soon


@dataclass(frozen=True)
class Who:
    """Who asks, why, and from which address."""

    by: str
    note: str
    came_from: str | None

    @property
    def columns(self) -> tuple[str, str, str | None]:
        address = None if self.came_from is None else safe_text(self.came_from, 255)
        return safe_text(self.by, 200), safe_text(self.note, MAX_NOTE), address


@dataclass(frozen=True)
class JobAction:
    """One of them. `state` and `generation` are the job's, before; `replay_id` is of a retry."""

    action: str
    at: datetime
    by: str
    note: str
    came_from: str | None
    state: str
    generation: int
    replay_id: str | None

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {"at": shown_time(self.at)}


async def cancel(db: AnyConnection, job_id: str, who: Who) -> bool:
    """End a job that waits, or ask one that runs to stop; whether it has ended.

    One that runs is asked once in each generation: its task sees it, and it does not run again. A job
    that was cancelled before stays so.

    Raises:
        JobActionRefusedError: it is not there, or has ended otherwise.
        MigrationError: the schema does not know of it yet.
        DatabaseAwayError: nothing is decided; ask again.
    """
    with translate(f"cancel job {job_id!r}"):
        try:
            before = await db.fetchval(_CANCEL, job_id, *who.columns)
        except asyncpg.UndefinedTableError as error:
            raise _older() from error
    if before == "RUNNING":
        return False
    if before in (*WAITING, "CANCELLED"):
        return True
    raise JobActionRefusedError(f"job {job_id} is {before}: only a job that has not ended is cancelled")


@off_without_table(lambda: False)
async def cancel_asked(db: AnyConnection, job_id: str, generation: int) -> bool:
    """Whether this generation of the job was asked to stop.

    Raises:
        DatabaseAwayError: not known now.
    """
    with translate(f"ask whether job {job_id!r} is cancelled"):
        return bool(await db.fetchval(_ASKED, job_id, generation))


async def retry(db: AnyConnection, job_id: str, who: Who, fitness: Fitness = ANY) -> Replay:
    """Have a DEAD job run again: a replay of its letter, planned and noted in one transaction.

    Raises:
        JobActionRefusedError: the job is not DEAD, its letter is not stored yet (`soon`), or is gone.
        ReplayRefusedError: its letter cannot be replayed, or a replay of it is outstanding.
        MigrationError: the schema does not know of it yet.
        DatabaseAwayError: nothing is decided; ask again.
    """
    with translate(f"retry job {job_id!r}"):
        if not await has_table(db, "job_actions"):
            raise _older()
        async with db.transaction():
            row = await db.fetchrow(_DEAD, job_id, STORED_WITHIN_S)
            if row is None or row["state"] != "DEAD":
                state = "not there" if row is None else row["state"]
                raise JobActionRefusedError(f"job {job_id} is {state}: only a DEAD job is run again")
            if row["letter_id"] is None:
                if row["young"]:
                    raise JobActionRefusedError(
                        f"the dead letter of job {job_id} is not stored yet", soon=True
                    )
                raise JobActionRefusedError(
                    f"job {job_id} has no dead letter: it was deleted, or has not been stored since the job"
                    " ended; submit it anew"
                )
            asked = Asked(who.by, who.note or f"retry of job {job_id}")
            plan = await replays.create(db, [row["letter_id"]], asked, fitness)
            await db.execute(_RETRY, job_id, *who.columns, plan.id)
    return plan


@off_without_table(tuple)
async def of_job(db: AnyConnection, job_id: str) -> Sequence[JobAction]:
    """What was done with a job, oldest first.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate(f"read what was done with job {job_id!r}"):
        return tuple(JobAction(**dict(row)) for row in await db.fetch(_LIST, job_id))


def _older() -> MigrationError:
    return MigrationError("jobs are cancelled and retried once the schema has it. Run: storage migrate")
