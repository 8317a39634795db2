"""What new letters mean for their jobs: a DEAD one gets its letter, one that waits for the message ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from storage.abandoned import END_ATTEMPTS
from storage.pool import AnyConnection

# What is decided by these rows is decided here and not in the updates: with a state in its condition an
# update was planned over all DEAD jobs, 300 ms for a batch among 15,000.
_LOCK = """
SELECT id, state, generation, attempt, letter_id IS NULL AS has_no_letter,
       coalesce(lease_until < now(), false) AS lease_is_over
FROM redrive.jobs WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE
"""
_LINK = """
UPDATE redrive.jobs j SET letter_id = l.id
FROM unnest($1::text[], $2::bigint[]) AS l (job_id, id) WHERE j.id = l.job_id
"""
_BURY = """
UPDATE redrive.jobs j
SET state = 'DEAD', reason = l.reason, error = l.error, letter_id = l.id, finished_at = now(),
    claim = NULL, worker = NULL, lease_until = NULL, lease_cap = NULL
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS l (job_id, id, reason, error)
WHERE j.id = l.job_id
"""


@dataclass(frozen=True)
class Ending:
    """A letter of a job. `generation` and `attempt` are what its message stands for."""

    job_id: str
    letter_id: int
    generation: int
    attempt: int
    reason: str
    error: str


async def settle(connection: AnyConnection, endings: Sequence[Ending]) -> set[int]:
    """In the caller's transaction, which keeps the jobs locked. Of two letters of a job the first counts.

    Returns the letters that may be copies: of a job, and not the one that it has got now.
    """
    first = _first(endings)
    if not first:
        return set()
    rows = await _link(connection, first)
    if buried := [first[row["id"]] for row in rows if _waits_in_vain(row, first[row["id"]])]:
        columns = [(each.job_id, each.letter_id, each.reason, each.error) for each in buried]
        await connection.execute(_BURY, *zip(*columns, strict=True))
    dead = {row["id"] for row in rows if row["state"] == "DEAD"} | {ending.job_id for ending in buried}
    if dead:
        await connection.execute(END_ATTEMPTS, sorted(dead))
    linked = [first[row["id"]] for row in rows if _lacks_its_letter(row, first[row["id"]])]
    own = {ending.letter_id for ending in (*linked, *buried)}
    known = {row["id"] for row in rows}
    return {ending.letter_id for ending in endings if ending.job_id in known} - own


async def link(connection: AnyConnection, endings: Sequence[Ending]) -> None:
    """The same, of jobs that are DEAD already: no job ends."""
    if first := _first(endings):
        await _link(connection, first)


def _first(endings: Sequence[Ending]) -> dict[str, Ending]:
    found: dict[str, Ending] = {}
    for ending in endings:
        found.setdefault(ending.job_id, ending)
    return found


async def _link(connection: AnyConnection, first: dict[str, Ending]) -> list[asyncpg.Record]:
    """The jobs as they were, locked."""
    rows = await connection.fetch(_LOCK, sorted(first))
    if linked := [first[row["id"]] for row in rows if _lacks_its_letter(row, first[row["id"]])]:
        await connection.execute(
            _LINK, [ending.job_id for ending in linked], [ending.letter_id for ending in linked]
        )
    return rows


def _lacks_its_letter(job: asyncpg.Record, ending: Ending) -> bool:
    return job["state"] == "DEAD" and bool(job["has_no_letter"]) and job["generation"] == ending.generation


def _waits_in_vain(job: asyncpg.Record, ending: Ending) -> bool:
    """For this message, or for an earlier one. One that runs is left to its worker while the lease lives: see
    `abandoned.bury_abandoned`."""
    if job["state"] in ("PENDING", "QUEUED", "RETRYING"):
        return (job["generation"], job["attempt"]) <= (ending.generation, ending.attempt)
    return (
        job["state"] == "RUNNING"
        and bool(job["lease_is_over"])
        and int(job["generation"]) <= ending.generation
    )
