"""Who may call the API: asked at each request, so that it works on the schema of the release before too.

A caller has a name, scopes, and secrets, of which hashes alone are stored: see `api_key_changes`.
"""

from __future__ import annotations

import contextlib
import hmac
from dataclasses import dataclass

import asyncpg

from storage.errors import translate
from storage.pool import AnyConnection

# By the part of the key that may be seen, or, where it was stored before the migration, by the start of its
# hash; whether it is that key is then told in constant time. A caller without secrets was made by the release
# before, after the migration.
_FIND = """
SELECT k.name, k.scopes, k.rate, k.burst, s.key_hash,
       extract(epoch FROM least(k.expires_at, s.ends_at) - now())::float8 AS good_for_s,
       coalesce(s.last_used_at < now() - interval '1 minute', true) AS unmarked
FROM redrive.api_secrets s JOIN redrive.api_keys k ON k.name = s.name
WHERE s.id IN ($1, left(encode($2::bytea, 'hex'), 8)) AND k.revoked_at IS NULL
  AND coalesce(least(k.expires_at, s.ends_at) > now(), true)
UNION ALL
SELECT k.name, k.scopes, k.rate, k.burst, k.key_hash, NULL, false
FROM redrive.api_keys k
WHERE left(encode(k.key_hash, 'hex'), 8) = left(encode($2::bytea, 'hex'), 8) AND k.revoked_at IS NULL
  AND NOT EXISTS (SELECT FROM redrive.api_secrets s WHERE s.name = k.name)
"""
_FIND_BEFORE = """
SELECT name, scopes, NULL::float8 AS rate, NULL::int AS burst, key_hash, NULL::float8 AS good_for_s,
       false AS unmarked
FROM redrive.api_keys WHERE key_hash = $1 AND revoked_at IS NULL
"""
# It is left to whoever marks it at the same time.
_MARK = """
UPDATE redrive.api_secrets SET last_used_at = now() WHERE key_hash IN (
    SELECT key_hash FROM redrive.api_secrets WHERE key_hash = $1 FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True)
class Principal:
    """Whom a key stands for, and what it may do.

    `key_id` is the part of the key that may be seen. `rate` and `burst`: None for what the settings say.
    `good_for_s`: seconds until the key ends by itself.
    """

    name: str
    scopes: frozenset[str]
    key_id: str = ""
    rate: float | None = None
    burst: int | None = None
    good_for_s: float | None = None


async def find(db: AnyConnection, key_id: str, key_hash: bytes) -> Principal | None:
    """Who holds this key; None when nobody does, or no longer. That it is used is put on record.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("look up an API key"):
        try:
            rows = await db.fetch(_FIND, key_id, key_hash)
        except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError):
            rows = await db.fetch(_FIND_BEFORE, key_hash)
        found = [row for row in rows if hmac.compare_digest(row["key_hash"], key_hash)]
        if not found:
            return None
        row = found[0]
        if row["unmarked"]:
            with contextlib.suppress(asyncpg.ReadOnlySQLTransactionError):  # a standby is read all the same
                await db.execute(_MARK, key_hash)
    scopes = frozenset(row["scopes"])
    return Principal(row["name"], scopes, key_id, row["rate"], row["burst"], row["good_for_s"])
