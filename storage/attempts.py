"""The attempts of jobs, as every surface shows them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from storage.pool import AnyConnection, Pool
from storage.times import shown_time

_ATTEMPTS = """
SELECT job_id, generation, attempt, worker, outcome, reason, exception_type, message, traceback, delay_ms,
       started_at, ended_at
FROM redrive.attempts WHERE job_id = ANY($1::text[]) ORDER BY job_id, generation, attempt
"""


@dataclass(frozen=True)
class AttemptRow:
    """A row of `redrive.attempts`: one run of a job. `delay_ms` is the wait that followed a `retry`."""

    generation: int
    attempt: int
    worker: str
    outcome: str
    reason: str | None
    exception_type: str | None
    message: str | None
    traceback: str | None
    delay_ms: int | None
    started_at: datetime
    ended_at: datetime | None

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {
            "started_at": shown_time(self.started_at),
            "ended_at": shown_time(self.ended_at),
        }


async def of_jobs(db: Pool | AnyConnection, ids: Collection[str]) -> dict[str, tuple[AttemptRow, ...]]:
    """The attempts of each of these jobs, oldest first; a job without any is left out.

    To be called inside of `translate`.
    """
    found: dict[str, list[AttemptRow]] = defaultdict(list)
    for row in await db.fetch(_ATTEMPTS, sorted(ids)) if ids else ():
        values = dict(row)
        found[values.pop("job_id")].append(AttemptRow(**values))
    return {job: tuple(rows) for job, rows in found.items()}
