"""What a replay's record keeps of letters that are gone: how many, and what became of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from storage.pool import AnyConnection, Pool
from storage.schema import has_table

TABLE = "expired_items"
_FOLD = """
WITH gone AS (
    DELETE FROM redrive.replay_items WHERE letter_id = ANY($1::bigint[]) RETURNING replay_id, state, outcome)
INSERT INTO redrive.expired_items AS e (replay_id, state, outcome, letters)
SELECT replay_id, state, outcome, count(*) FROM gone GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
ON CONFLICT (replay_id, state, outcome) DO UPDATE SET letters = e.letters + excluded.letters
"""
_OF_PLANS = """
SELECT replay_id::text, coalesce(outcome, state) AS fate, sum(letters)::bigint AS letters
FROM redrive.expired_items WHERE replay_id = ANY($1::uuid[]) GROUP BY 1, 2 ORDER BY 1, 2
"""


async def fold(connection: AnyConnection, letter_ids: Sequence[int]) -> None:
    """Delete the items of these letters; their replays keep the numbers."""
    await connection.execute(_FOLD, letter_ids)


async def of_plans(connection: Pool | AnyConnection, plans: Sequence[str]) -> dict[str, dict[str, int]]:
    """Letters that are gone by what became of them (the outcome, or the state of an item that was not sent),
    of each of these replays (ids) that has any. To be called inside `translate`.
    """
    found: dict[str, dict[str, int]] = defaultdict(dict)
    if plans and await has_table(connection, TABLE):
        for row in await connection.fetch(_OF_PLANS, plans):
            found[row["replay_id"]][row["fate"]] = row["letters"]
    return found
