"""How much waits in the outbox, as cheaply as it can be told."""

from __future__ import annotations

from collections.abc import Sequence

from storage.errors import translate
from storage.pool import AnyConnection

# So many are counted each time.
EXACT = 1_000
# Rows are numbered without repetition, so there are never more than this.
_AT_MOST = """
SELECT coalesce((SELECT id FROM redrive.outbox ORDER BY id DESC LIMIT 1)
              - (SELECT id FROM redrive.outbox ORDER BY id LIMIT 1) + 1, 0)
"""
_DUE = """
SELECT count(*) FROM (
    SELECT FROM redrive.outbox WHERE not_before <= now() + $2::float8 * interval '1 second' LIMIT $1) AS due
"""
_NEW = """
SELECT EXISTS (SELECT FROM unnest($2::text[]) AS asked (key) WHERE NOT EXISTS (
    SELECT FROM redrive.idempotency_keys k WHERE k.scope = $1 AND k.key = asked.key))
"""


async def due(db: AnyConnection, limit: int, *, within_s: float) -> int:
    """Messages that are due within so many seconds, counted to `limit` at most. Of more than `EXACT` the
    range of all rows' numbers may stand for it, as it costs two look-ups.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("measure the outbox"):
        few = min(limit, EXACT)
        counted = int(await db.fetchval(_DUE, few, within_s))
        if counted < few or few == limit:
            return counted
        at_most = int(await db.fetchval(_AT_MOST))
        return at_most if at_most < limit else int(await db.fetchval(_DUE, limit, within_s))


async def any_new(db: AnyConnection, scope: str, keys: Sequence[str]) -> bool:
    """Whether one of these idempotency keys has not been used.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("look up idempotency keys"):
        return bool(await db.fetchval(_NEW, scope, list(keys)))
