"""When jobs were replayed, for the workers that run them."""

from __future__ import annotations

from collections.abc import Sequence

from storage.claims import TIMEOUT_S, Connection, refusals

# A replay sets `queued_at` together with the new generation.
REPLAYED = """
SELECT id, extract(epoch FROM clock_timestamp() - queued_at)::float8 AS age_s
FROM redrive.jobs WHERE id = ANY($1::text[]) AND generation > 1 AND queued_at IS NOT NULL
"""


async def replayed(connection: Connection, job_ids: Sequence[str]) -> dict[str, float]:
    """Seconds since each of these jobs was replayed last, for those that ever were.

    Raises:
        storage.errors.DatabaseAwayError, storage.claims.StatementError
    """
    with refusals(f"read {len(job_ids)} jobs"):
        found = await connection.fetch(REPLAYED, list(job_ids), timeout=TIMEOUT_S)
    return {row["id"]: row["age_s"] for row in found}
