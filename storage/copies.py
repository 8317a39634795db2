"""Further letters of one death: copies of a job's message that were each dead-lettered.

They are stored like any letter, with `duplicate_of`; their state follows that of the first (a trigger in
0002_dead_letters.sql), so that what is done with one settles all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from storage.pool import AnyConnection

# The letter by which the job is DEAD, in the generation that the letter is of; for an earlier generation
# the first letter that is on record of it. FOR SHARE: no state may change between this and the commit.
_ORIGINALS = """
WITH found AS (
    SELECT n.id AS letter, CASE
        WHEN j.generation = n.generation AND j.state = 'DEAD' THEN j.letter_id
        WHEN j.generation > n.generation THEN (
            SELECT min(o.id + 0) FROM redrive.dead_letters o -- by the job, not in the order of ids
            WHERE o.job_id = n.job_id AND coalesce(o.generation, 1) = n.generation AND o.duplicate_of IS NULL)
        END AS original
    FROM unnest($1::bigint[], $2::text[], $3::integer[]) AS n (id, job_id, generation)
    JOIN redrive.jobs j ON j.id = n.job_id)
SELECT found.letter, found.original FROM found WHERE found.original <> found.letter
"""
_STATES = """
SELECT id, state, fingerprint FROM redrive.dead_letters WHERE id = ANY($1::bigint[]) ORDER BY id FOR SHARE
"""


@dataclass(frozen=True)
class Original:
    """The letter that a copy is of. State and group are None when both are of the same batch."""

    id: int
    state: str | None = None
    fingerprint: str | None = None


async def originals(
    connection: AnyConnection, letters: Sequence[tuple[int, str, int]], batch: Iterable[int]
) -> dict[int, Original]:
    """Which letters (id, job id, generation) are copies, inside the transaction that stores them.

    The jobs must be locked and settled before: of a batch's letters the job's own is no copy.

    Args:
        batch: ids of all letters that are stored together: each may be the original.
    """
    if not letters:
        return {}
    rows = await connection.fetch(_ORIGINALS, *zip(*letters, strict=True))
    wanted = sorted({row["original"] for row in rows})
    stored = {row["id"]: Original(**dict(row)) for row in await connection.fetch(_STATES, wanted)}
    here = {id_: Original(id_) for id_ in batch}
    known = here | stored  # an original that was deleted since is none
    return {row["letter"]: known[row["original"]] for row in rows if row["original"] in known}
