"""How jobs ended, as Celery's results are read; what is kept for these alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from storage.errors import translate
from storage.pool import AnyConnection
from storage.schema import off_without_table

TIMEOUT_S = 10.0

# Of a job that no worker claimed there may be a letter alone.
# A job that another one blocks has no row; it fails as that one did, for as long as that one is dead. A cause
# without a row died unread.
_FIND = """
SELECT w.id, j.state, j.type, j.queue, j.result, j.progress, j.finished_at, j.reason, j.error, j.worker,
       j.retries, a.exception_type, a.message, a.traceback, k.children,
       b.cause, b.chord, b.reason AS cause_reason, b.error AS cause_error,
       b.exception_type AS cause_exception_type, b.message AS cause_message,
       u.reason AS unread_reason, u.detail AS unread_detail
FROM unnest($1::text[]) AS w (id)
LEFT JOIN redrive.jobs AS j ON j.id = w.id
LEFT JOIN redrive.result_children AS k ON k.job_id = w.id
LEFT JOIN LATERAL (
    SELECT exception_type, message, traceback FROM redrive.attempts
    WHERE job_id = w.id AND generation = j.generation AND j.state IN ('DEAD', 'RETRYING')
      AND outcome <> 'running'
    ORDER BY attempt DESC LIMIT 1) AS a ON true
LEFT JOIN LATERAL (
    SELECT x.cause, x.chord, d.error, e.exception_type, e.message, coalesce(d.reason,
               (SELECT l.reason FROM redrive.dead_letters AS l WHERE l.job_id = x.cause LIMIT 1)) AS reason
    FROM redrive.blocked_results AS x
    LEFT JOIN redrive.jobs AS d ON d.id = x.cause
    LEFT JOIN LATERAL (
        SELECT exception_type, message FROM redrive.attempts
        WHERE job_id = d.id AND generation = d.generation AND outcome <> 'running'
        ORDER BY attempt DESC LIMIT 1) AS e ON true
    WHERE x.job_id = w.id AND j.id IS NULL AND (d.id IS NULL OR d.state = 'DEAD')
    LIMIT 1) AS b ON true
LEFT JOIN LATERAL (
    SELECT reason, detail FROM redrive.dead_letters
    WHERE job_id = w.id AND j.id IS NULL AND state IN ('open', 'discarded')
    ORDER BY id DESC LIMIT 1) AS u ON true
"""
_DEATH = """
SELECT j.state, j.generation, j.reason, j.error, a.exception_type, a.message, a.traceback
FROM redrive.jobs AS j
LEFT JOIN LATERAL (
    SELECT exception_type, message, traceback FROM redrive.attempts
    WHERE job_id = j.id AND generation = $2 AND outcome <> 'running'
    ORDER BY attempt DESC LIMIT 1) AS a ON true
WHERE j.id = $1
"""
_CHILDREN = """
INSERT INTO redrive.result_children (job_id, children) VALUES ($1, $2)
ON CONFLICT (job_id) DO UPDATE SET children = excluded.children
"""
_SAVE_GROUP = """
INSERT INTO redrive.result_groups (group_id, results) VALUES ($1, $2)
ON CONFLICT (group_id) DO UPDATE SET results = excluded.results
"""
_GROUP = "SELECT results FROM redrive.result_groups WHERE group_id = $1"
_DELETE_GROUP = "DELETE FROM redrive.result_groups WHERE group_id = $1"


@dataclass(frozen=True)
class Ended:
    """The exception that ended a job, as far as it left one."""

    reason: str | None
    error: str | None
    exception_type: str | None
    message: str | None
    traceback: str | None = None


@dataclass(frozen=True)
class Blocked:
    """The job will not run while `cause` is dead."""

    cause: str
    chord: bool
    ended: Ended


@dataclass(frozen=True)
class Result:
    """What is known of one id; `state` is None when no such job has been claimed or submitted."""

    id: str
    state: str | None
    task: str | None
    queue: str | None
    result: bytes | None
    progress: bytes | None
    finished_at: datetime | None
    worker: str | None
    retries: int | None
    children: bytes | None
    ended: Ended
    blocked: Blocked | None
    unread: Ended | None  # it has no row; its message is a dead letter


@dataclass(frozen=True)
class Death:
    """The job's row, and how its last attempt of the asked generation ended."""

    state: str
    generation: int
    ended: Ended


async def find(connection: AnyConnection, job_ids: Sequence[str]) -> list[Result]:
    """One for each id, in any order.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate(f"read {len(job_ids)} results"):
        rows = await connection.fetch(_FIND, list(job_ids), timeout=TIMEOUT_S)
    return [
        Result(
            row["id"], row["state"], row["type"], row["queue"], row["result"], row["progress"],
            row["finished_at"], row["worker"], row["retries"], row["children"],
            Ended(row["reason"], row["error"], row["exception_type"], row["message"], row["traceback"]),
            None
            if row["cause"] is None
            else Blocked(
                row["cause"],
                row["chord"],
                Ended(
                    row["cause_reason"], row["cause_error"], row["cause_exception_type"], row["cause_message"]
                ),
            ),
            None
            if row["unread_reason"] is None
            else Ended(row["unread_reason"], row["unread_detail"], None, None),
        )
        for row in rows
    ]  # fmt: skip


async def death(connection: AnyConnection, job_id: str, generation: int) -> Death | None:
    """How a job ended in `generation`; None: it has no row."""
    with translate("read a death"):
        row = await connection.fetchrow(_DEATH, job_id, generation, timeout=TIMEOUT_S)
    if row is None:
        return None
    ended = Ended(row["reason"], row["error"], row["exception_type"], row["message"], row["traceback"])
    return Death(row["state"], row["generation"], ended)


@off_without_table(lambda: None)
async def record_children(connection: AnyConnection, job_id: str, children: bytes) -> None:
    """Write down what a job has published (JSON)."""
    with translate("record children"):
        await connection.execute(_CHILDREN, job_id, children, timeout=TIMEOUT_S)


async def save_group(connection: AnyConnection, group_id: str, results: bytes) -> None:
    """Keep a group's result tuple (JSON) under its id."""
    with translate("save a group"):
        await connection.execute(_SAVE_GROUP, group_id, results, timeout=TIMEOUT_S)


async def group(connection: AnyConnection, group_id: str) -> bytes | None:
    """What `save_group` kept."""
    with translate("read a group"):
        found: bytes | None = await connection.fetchval(_GROUP, group_id, timeout=TIMEOUT_S)
    return found


async def delete_group(connection: AnyConnection, group_id: str) -> None:
    """Forget what `save_group` kept."""
    with translate("delete a group"):
        await connection.execute(_DELETE_GROUP, group_id, timeout=TIMEOUT_S)
