"""How far replays have come, in numbers."""

from __future__ import annotations

from typing import Any

from storage.errors import translate
from storage.pool import AnyConnection
from storage.times import shown_time

_PROGRESS = """
WITH plans AS (
    SELECT id, state, requested_by, created_at, finished_at FROM redrive.replays
    WHERE finished_at IS NULL OR finished_at > now() - interval '1 minute'
    ORDER BY created_at DESC LIMIT 100)
SELECT p.id::text AS id, p.state AS plan_state, p.requested_by, p.created_at, p.finished_at,
       i.state, i.outcome, count(i.token) AS letters
FROM plans p LEFT JOIN redrive.replay_items i ON i.replay_id = p.id
GROUP BY p.id, p.state, p.requested_by, p.created_at, p.finished_at, i.state, i.outcome
ORDER BY p.created_at, p.id, i.state, i.outcome
"""


async def progress(connection: AnyConnection) -> dict[str, dict[str, Any]]:
    """Replays that run or ended within the last minute, by id: letters in all, by state and by outcome.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
    """
    found: dict[str, dict[str, Any]] = {}
    with translate("look how far replays are"):
        rows = await connection.fetch(_PROGRESS)
    for row in rows:
        plan = found.setdefault(
            row["id"],
            {
                "id": row["id"],
                "state": row["plan_state"],
                "requested_by": row["requested_by"],
                "created_at": shown_time(row["created_at"]),
                "finished_at": shown_time(row["finished_at"]),
                "letters": 0,
                "states": {},
                "outcomes": {},
            },
        )
        if row["state"] is None:
            continue
        plan["letters"] += row["letters"]
        plan["states"][row["state"]] = plan["states"].get(row["state"], 0) + row["letters"]
        if row["outcome"] is not None:
            plan["outcomes"][row["outcome"]] = plan["outcomes"].get(row["outcome"], 0) + row["letters"]
    return found
