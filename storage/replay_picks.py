"""Which letters of a replay plan are sent next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from storage.pool import AnyConnection

# Of bodies that are in memory for one batch; a single letter may be larger.
BATCH_BYTES = 16 * 1024 * 1024
# As many as one batch holds in memory, and one at least, however large. By key, step by step: in one join all
# letters of the plan were read for each batch.
_PICK = """
WITH next AS MATERIALIZED (
    SELECT i.token, i.position, i.letter_id FROM redrive.replay_items i
    WHERE i.replay_id = $1::uuid AND i.decided_at IS NULL AND i.state = 'staged'
      AND i.position <= $3 AND i.position > $6 AND (i.generation IS NOT NULL OR NOT $4)
    ORDER BY i.position LIMIT $2),
sized AS (
    SELECT n.token, sum(l.body_size) OVER (ORDER BY n.position) - l.body_size AS bytes_before
    FROM next n CROSS JOIN LATERAL (
        SELECT d.body_size FROM redrive.dead_letters d WHERE d.id = n.letter_id OFFSET 0) AS l)
SELECT i.token, i.position, i.letter_id, i.target, i.generation, l.properties, l.body, l.job_id,
       l.generation AS was_generation
FROM redrive.replay_items i JOIN redrive.dead_letters l ON l.id = i.letter_id
WHERE i.token = ANY (ARRAY(SELECT token FROM sized WHERE bytes_before < $5)) AND i.state = 'staged'
ORDER BY i.position FOR UPDATE OF i SKIP LOCKED
"""


@dataclass
class Plan:
    """A plan with letters still to be sent. `rate` in letters per second, None = no limit.

    `passed`: to that position nothing was left when it was looked for last, so that a long plan is not read
    from its beginning for each batch.
    """

    id: str
    rate: float | None
    has_terms: bool = True
    passed: int = 0


async def pick(
    connection: AnyConnection, plan: Plan, limit: int, bound: int, *, is_over: bool
) -> Sequence[asyncpg.Record]:
    """The next `limit` at most up to position `bound`, locked; of a plan that `is_over` what was begun."""
    while True:
        after = plan.passed
        rows = await connection.fetch(_PICK, plan.id, limit, bound, is_over, BATCH_BYTES, after)
        # What could not be sent is staged again, behind: looked for once nothing is left ahead.
        plan.passed = max(plan.passed, rows[-1]["position"]) if rows else 0
        if rows or not after:
            return rows
