"""Idempotency keys are kept for a published time, then deleted, a few at a time."""

from __future__ import annotations

from storage.errors import translate
from storage.pool import AnyConnection

# At a time: a statement holds its locks for some milliseconds.
BATCH = 1_000
# Several API processes share the work.
_PRUNE = """
DELETE FROM redrive.idempotency_keys WHERE (scope, key) IN (
    SELECT scope, key FROM redrive.idempotency_keys
    WHERE created_at < now() - $1::float8 * interval '1 second'
    ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
"""


async def prune(db: AnyConnection, retention_s: float) -> int:
    """Delete the oldest keys that are older, at most `BATCH`; how many.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("delete old idempotency keys"):
        tag = await db.execute(_PRUNE, retention_s, BATCH)
    return int(tag.removeprefix("DELETE "))
