"""Groups of letters that died alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from storage.pool import AnyConnection

# In one order everywhere, so that two queues' batches cannot wait for each other.
_LOCK = (
    "SELECT fingerprint, last_seen < now() - make_interval(secs => $2) AS silent FROM redrive.groups"
    " WHERE fingerprint = ANY($1::text[]) ORDER BY fingerprint FOR UPDATE"
)
# xmax is 0 only in a row version that an INSERT made: tells the first letter of a group from the others.
_UPSERT = """
INSERT INTO redrive.groups AS g (fingerprint, queue, task, reason, exception_type, top_frame, letters)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
ORDER BY 1
ON CONFLICT (fingerprint) DO UPDATE
    SET letters = g.letters + excluded.letters, last_seen = greatest(g.last_seen, now())
RETURNING fingerprint, xmax = 0 AS is_new
"""


@dataclass(frozen=True)
class Group:
    """What a group's letters have in common."""

    fingerprint: str
    queue: str
    task: str | None
    reason: str
    exception_type: str | None
    top_frame: str | None


@dataclass(frozen=True)
class Sighting:
    """A group that was just counted up."""

    fingerprint: str
    is_new: bool
    after_silence: bool


async def count(
    connection: AnyConnection, letters: Sequence[tuple[Group, int]], *, silence_s: float
) -> list[Sighting]:
    """Add letters to their groups, each with a number of them, inside the caller's transaction."""
    ordered = sorted(letters, key=lambda pair: pair[0].fingerprint)
    prints = [group.fingerprint for group, _ in ordered]
    silent = {row["fingerprint"]: row["silent"] for row in await connection.fetch(_LOCK, prints, silence_s)}
    rows = await connection.fetch(
        _UPSERT,
        prints,
        [group.queue for group, _ in ordered],
        [group.task for group, _ in ordered],
        [group.reason for group, _ in ordered],
        [group.exception_type for group, _ in ordered],
        [group.top_frame for group, _ in ordered],
        [number for _, number in ordered],
    )
    return [
        Sighting(row["fingerprint"], row["is_new"], bool(silent.get(row["fingerprint"], False)))
        for row in rows
    ]
