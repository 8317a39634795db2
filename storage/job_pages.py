"""Lists of jobs, page by page, fast also among millions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from storage.errors import translate
from storage.letter_filter import Parameters
from storage.pool import AnyConnection, Pool, lend
from storage.times import from_microseconds, microseconds, shown_time

MAX_PAGE = 1_000
STATES = ("PENDING", "QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "DEAD", "CANCELLED")
# A plan for any value is made for the most common one.
_PLAN_FOR_VALUES = "SET LOCAL plan_cache_mode = force_custom_plan"
_COLUMNS = """id, type, queue, state, generation, attempt, reason, created_at, started_at, finished_at,
    error, letter_id"""
_CURSOR = re.compile(r"(-?[0-9]{1,18})\.(.{1,255})", re.DOTALL)


@dataclass(frozen=True)
class JobFilter:
    """Which jobs: all that is given must hold. `since` <= time of acceptance < `until`, with a zone.

    `refused`: the broker refused their message, which is tried again.
    """

    type: str | None = None
    queue: str | None = None
    state: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    refused: bool = False


@dataclass(frozen=True)
class JobCursor:
    """After which job a page begins."""

    created_at: datetime
    id: str

    def __str__(self) -> str:
        return f"{microseconds(self.created_at)}.{self.id}"

    @classmethod
    def parse(cls, text: str) -> JobCursor:
        """Undoes `str`.

        Raises:
            ValueError: it is no cursor.
        """
        match = _CURSOR.fullmatch(text)
        try:
            if match is None or "\x00" in text:
                raise ValueError
            return cls(from_microseconds(int(match[1])), match[2])
        except (ValueError, OverflowError):
            raise ValueError(f"{text[:60]!r} is no cursor: take the one of the page before") from None


@dataclass(frozen=True)
class ListedJob:
    """A job without what may be long: payload, progress, result, attempts."""

    id: str
    type: str
    queue: str
    state: str
    generation: int
    attempt: int
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    error: str | None
    letter_id: int | None

    def as_json(self) -> dict[str, Any]:
        times = ("created_at", "started_at", "finished_at")
        return vars(self) | {name: shown_time(getattr(self, name)) for name in times}


@dataclass(frozen=True)
class JobPage:
    """Jobs, and where the next page begins; None on the last one."""

    jobs: tuple[ListedJob, ...]
    next: JobCursor | None


async def page(
    pool: Pool | AnyConnection, wanted: JobFilter, *, limit: int = 50, after: JobCursor | None = None
) -> JobPage:
    """At most `limit` jobs that match, the last accepted first.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    limit = max(1, min(limit, MAX_PAGE))
    statement, values = listing(wanted, limit + 1, after)
    with translate("list jobs"):
        async with lend(pool) as connection, connection.transaction(readonly=True):
            await connection.execute(_PLAN_FOR_VALUES)
            rows = await connection.fetch(statement, *values)
    jobs = tuple(ListedJob(**dict(row)) for row in rows[:limit])
    return JobPage(jobs, JobCursor(jobs[-1].created_at, jobs[-1].id) if len(rows) > limit else None)


def listing(wanted: JobFilter, limit: int, after: JobCursor | None) -> tuple[str, list[object]]:
    """The statement and its values."""
    values = Parameters()
    conditions = [
        f"{column} = {values.add(value)}"
        for column, value in (("type", wanted.type), ("queue", wanted.queue))
        if value is not None
    ]
    if wanted.state is not None:
        # Spelled out, so that partial indexes are used.
        if wanted.state not in STATES:
            raise ValueError(f"no state {wanted.state!r}; there are {', '.join(STATES)}")
        conditions.append(f"state = '{wanted.state}'")
    if wanted.refused:
        conditions.append("id IN (SELECT job_id FROM redrive.outbox WHERE last_error IS NOT NULL)")
    if wanted.since is not None:
        conditions.append(f"created_at >= {values.add(wanted.since)}")
    if wanted.until is not None:
        conditions.append(f"created_at < {values.add(wanted.until)}")
    if after is not None:
        at = values.add(after.created_at)
        # The first is for the index, the second for jobs of the same time.
        conditions.append(f"created_at <= {at} AND (created_at, id) < ({at}, {values.add(after.id)})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    # The limit is spelled out: a plan for any limit would be made for a tenth of the table.
    order = f" ORDER BY created_at DESC, id DESC LIMIT {limit}"
    return f"SELECT {_COLUMNS} FROM redrive.jobs{where}{order}", values.values  # noqa: S608 - parameters
