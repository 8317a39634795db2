"""When a job may run, until when, and before which others: what its submission asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from storage.errors import MigrationError, translate
from storage.pool import AnyConnection
from storage.schema import has_table, off_without_table

_OF_JOBS = """
SELECT job_id, not_before, expires, priority FROM redrive.job_options WHERE job_id = ANY ($1::text[])
"""


@dataclass(frozen=True)
class JobOptions:
    """`delay_s` (seconds from acceptance, by the database's clock) and `not_before` are never both given."""

    delay_s: float | None = None
    not_before: datetime | None = None
    expires: datetime | None = None
    priority: int | None = None

    @property
    def columns(self) -> tuple[object, ...]:
        return self.delay_s, self.not_before, self.expires, self.priority

    @property
    def retry_options(self) -> dict[str, Any]:
        """What a message made anew has of them, as `redrive.jobs.retry_options` spells it."""
        found = {"expires": self.expires and self.expires.isoformat(), "priority": self.priority}
        return {name: value for name, value in found.items() if value is not None}


NO_OPTIONS = JobOptions()
# The alias `w` has the four columns above as values; the due time is never before the acceptance.
DUE = "greatest(now(), coalesce(w.not_before, now() + w.delay_s * interval '1 second'))"
INSERT = f"""
    INSERT INTO redrive.job_options (job_id, not_before, expires, priority)
    SELECT w.id, CASE WHEN num_nonnulls(w.not_before, w.delay_s) > 0 THEN {DUE} END, w.expires, w.priority
    FROM wanted w JOIN key ON key.job_id = w.id
    WHERE num_nonnulls(w.delay_s, w.not_before, w.expires, w.priority) > 0
"""  # noqa: S608 - constants


@off_without_table(dict)
async def of_jobs(db: AnyConnection, ids: Sequence[str]) -> dict[str, JobOptions]:
    """The options of those jobs that have any; a delay as the time that came of it. Not in a transaction.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate(f"read the options of {len(ids)} jobs"):
        return await read(db, ids)


async def read(db: AnyConnection, ids: Sequence[str]) -> dict[str, JobOptions]:
    """The same, where the table is known to exist."""
    rows = await db.fetch(_OF_JOBS, list(ids))
    return {
        row["job_id"]: JobOptions(None, row["not_before"], row["expires"], row["priority"]) for row in rows
    }


async def require(db: AnyConnection) -> None:
    """Raises MigrationError where the schema does not know of options yet."""
    if not await has_table(db, "job_options"):
        raise MigrationError(
            "jobs are taken with delay_s, not_before, expires and priority once the schema has these."
            " Run: storage migrate"
        )


def merged(submitted: JobOptions | None, changed: bytes | None) -> bytes | None:
    """Message options as JSON: what a retry changed goes before what was submitted."""
    asked = submitted.retry_options if submitted else {}
    return json.dumps(asked | json.loads(changed or b"{}")).encode() if asked else changed
