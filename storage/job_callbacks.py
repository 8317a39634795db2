"""Who is to be told when a job has ended, as its submission asked."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from storage.errors import MigrationError, translate
from storage.pool import AnyConnection
from storage.schema import has_table, off_without_table

# In which a job is at an end.
FINAL = ("SUCCEEDED", "DEAD", "CANCELLED")
_ATTACH = """
WITH asked AS (
    INSERT INTO redrive.job_callbacks (job_id, url, place, states)
    SELECT job_id, url, place, string_to_array(states, ',')
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS a (job_id, url, place, states)
)
UPDATE redrive.jobs SET calls_back = true WHERE id = ANY ($1::text[])
"""
_OF_JOB = """
SELECT j.url, j.states, coalesce((
    SELECT json_agg(json_build_object(
        'id', c.id, 'generation', c.generation, 'job_state', c.job_state, 'state', c.state,
        'tries', c.tries, 'next_try_at', CASE WHEN c.state = 'pending' THEN c.next_try_at END,
        'ended_at', c.ended_at, 'why_dead', c.why_dead, 'last_answer', c.answers -> -1)
        ORDER BY c.created_at, c.id)
    FROM redrive.callbacks c WHERE c.job_id = j.job_id), '[]')::text AS deliveries
FROM redrive.job_callbacks j WHERE j.job_id = $1
"""


@dataclass(frozen=True)
class JobCallback:
    """`url` gets a POST when the job comes to one of `states`. `place`: its host and port."""

    url: str
    place: str
    states: tuple[str, ...] = FINAL

    @property
    def shown_url(self) -> str:
        return shown_url(self.url)


@dataclass(frozen=True)
class CallbackOfJob:
    """What was asked for, and what became of it each time that the job ended."""

    callback: JobCallback
    deliveries: tuple[dict[str, Any], ...]

    def as_json(self) -> dict[str, Any]:
        asked = {"url": self.callback.shown_url, "on": list(self.callback.states)}
        return asked | {"deliveries": list(self.deliveries)}


async def attach(db: AnyConnection, asked: Sequence[tuple[str, JobCallback]]) -> None:
    """Note for new jobs, by id, who is to be told; in the transaction that makes them.

    Raises:
        MigrationError: the schema does not know callbacks yet.
    """
    if not await has_table(db, "job_callbacks"):
        raise MigrationError(
            "jobs are taken with callback_url once the schema has callbacks. Run: storage migrate"
        )
    rows = [(job, each.url, each.place, ",".join(each.states)) for job, each in asked]
    await db.execute(_ATTACH, *map(list, zip(*rows, strict=True)))


@off_without_table(lambda: None)
async def of_job(db: AnyConnection, job_id: str) -> CallbackOfJob | None:
    """Of a job that has one. Not in a transaction.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate(f"read the callback of job {job_id!r}"):
        row = await db.fetchrow(_OF_JOB, job_id)
    if row is None:
        return None
    deliveries = tuple(json.loads(row["deliveries"]))
    return CallbackOfJob(JobCallback(row["url"], "", tuple(row["states"])), deliveries)


def shown_url(url: str) -> str:
    """Without path and query: many services have the secret in the path."""
    scheme, _, rest = url.partition("://")
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    return f"{scheme}://{authority}/{'' if rest.removesuffix('/') == authority else '…'}"
