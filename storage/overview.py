"""Counts for lists of queues: jobs and outbox."""

from __future__ import annotations

from dataclasses import dataclass

from storage.errors import translate
from storage.pool import AnyConnection
from storage.schema import require_level

JOBS = "SELECT queue, state, count(*) AS jobs FROM redrive.jobs GROUP BY queue, state ORDER BY queue, state"
OUTBOX = """
SELECT queue, count(*) FILTER (WHERE created_at <= now()) AS messages,
       count(*) FILTER (WHERE created_at > now()) AS delayed,
       count(*) FILTER (WHERE last_error IS NOT NULL) AS refused,
       greatest(extract(epoch FROM now() - min(created_at)), 0)::float8 AS oldest_s,
       (array_agg(last_error ORDER BY id DESC) FILTER (WHERE last_error IS NOT NULL))[1] AS last_error
FROM redrive.outbox GROUP BY queue ORDER BY queue
"""


@dataclass(frozen=True)
class JobCount:
    queue: str
    state: str
    jobs: int


@dataclass(frozen=True)
class OutboxCount:
    """Messages not yet confirmed by the broker, without the `delayed` ones that are not due yet.

    `oldest_s`: seconds since the oldest was accepted, or due if it was delayed.
    """

    queue: str
    messages: int
    delayed: int
    refused: int
    oldest_s: float
    last_error: str | None


async def job_counts(db: AnyConnection) -> tuple[JobCount, ...]:
    """Jobs by queue and state.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("count jobs"):
        return tuple(JobCount(**row) for row in await db.fetch(JOBS))


async def outbox_counts(db: AnyConnection) -> tuple[OutboxCount, ...]:
    """The outbox by queue.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("count the outbox"):
        return tuple(OutboxCount(**row) for row in await db.fetch(OUTBOX))


async def require_schema(db: AnyConnection) -> None:
    """Return when the schema is at the level that this release needs.

    Raises:
        MigrationError: it is not.
        DatabaseAwayError: try again.
    """
    with translate("read the schema's level"):
        await require_level(db)
