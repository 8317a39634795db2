"""API keys as their administrator sees them: made, listed, rotated, limited, revoked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from storage.errors import MigrationError, StorageError, translate
from storage.pool import AnyConnection
from storage.schema import has_table
from storage.times import shown_time

TABLE = "api_secrets"
_CREATE = """
INSERT INTO redrive.api_keys (name, key_hash, scopes, expires_at, rate, burst, created_by)
VALUES ($1, $2, $3, now() + $4::interval, $5, $6, $7)
ON CONFLICT (name) DO NOTHING RETURNING name
"""
_CREATE_BEFORE = """
INSERT INTO redrive.api_keys (name, key_hash, scopes) VALUES ($1, $2, $3)
ON CONFLICT (name) DO NOTHING RETURNING name
"""
_ADD = "INSERT INTO redrive.api_secrets (id, key_hash, name, created_by) VALUES ($1, $2, $3, $4)"
_LIVE = "revoked_at IS NULL AND coalesce(expires_at > now(), true)"
_LOCK = f"SELECT {_LIVE} AS live FROM redrive.api_keys WHERE name = $1 FOR UPDATE"  # noqa: S608 - constants
# The old one never lasts longer than it would have.
_END = """
UPDATE redrive.api_secrets SET ends_at = least(coalesce(ends_at, 'infinity'), now() + $2::interval)
WHERE name = $1 AND coalesce(ends_at > now(), true)
"""
_NEWEST = "UPDATE redrive.api_keys SET key_hash = $2 WHERE name = $1"
_LIMIT = "UPDATE redrive.api_keys SET rate = $2, burst = $3 WHERE name = $1 RETURNING name"
_REVOKE = """
UPDATE redrive.api_keys SET revoked_by = CASE WHEN revoked_at IS NULL THEN $2 ELSE revoked_by END,
       revoked_at = coalesce(revoked_at, now())
WHERE name = $1 RETURNING name
"""
_REVOKE_BEFORE = """
UPDATE redrive.api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE name = $1 RETURNING name
"""
# In one JSON: of its secrets as many as there are.
_LIST = """
SELECT k.*, (
    SELECT coalesce(json_agg(json_build_object(
        'id', s.id, 'created_at', s.created_at, 'created_by', s.created_by, 'ends_at', s.ends_at,
        'last_used_at', s.last_used_at, 'ended', coalesce(s.ends_at <= now(), false))
        ORDER BY s.created_at, s.id), '[]')
    FROM redrive.api_secrets s WHERE s.name = k.name) AS secrets,
    coalesce(k.expires_at <= now(), false) AS expired
FROM redrive.api_keys k WHERE $1::text IS NULL OR k.name = $1 ORDER BY k.created_at, k.id
"""
_LIST_BEFORE = """
SELECT k.*, '[]' AS secrets, false AS expired FROM redrive.api_keys k
WHERE $1::text IS NULL OR k.name = $1 ORDER BY k.created_at, k.id
"""


class KeyExistsError(StorageError):
    """An API key of that name exists (or existed: a name on record is not given twice)."""


class UnknownKeyError(StorageError):
    """There is no API key of that name."""


class KeyEndedError(StorageError):
    """The key was revoked or has expired: it is not given a new secret."""


@dataclass(frozen=True)
class NewSecret:
    """`key_id` is the part of a key that may be seen, `key_hash` what is stored of all of it."""

    key_id: str
    key_hash: bytes


@dataclass(frozen=True)
class Terms:
    """What a new key may: its scopes, for how long, and how often (None: what the settings say)."""

    scopes: Sequence[str]
    expires_in: timedelta | None = None
    rate: float | None = None
    burst: int | None = None


@dataclass(frozen=True)
class ApiKey:
    """A caller as it is listed; the keys themselves are known to their holder alone."""

    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    revoked_at: datetime | None
    created_by: str | None = None
    revoked_by: str | None = None
    expires_at: datetime | None = None
    expired: bool = False
    rate: float | None = None
    burst: int | None = None
    secrets: tuple[dict[str, Any], ...] = ()

    @property
    def state(self) -> str:
        """`active`, `revoked` or `expired`."""
        return "revoked" if self.revoked_at else "expired" if self.expired else "active"

    def as_json(self) -> dict[str, Any]:
        times = {name: shown_time(getattr(self, name)) for name in ("created_at", "expires_at", "revoked_at")}
        return vars(self) | times | {"state": self.state}


async def create(db: AnyConnection, name: str, secret: NewSecret, terms: Terms, by: str) -> ApiKey:
    """Store a new caller and the hash of its key.

    Raises:
        KeyExistsError: the name is taken.
        MigrationError: it is to end or has limits, which the schema of the release before does not know.
        DatabaseAwayError: nothing is known to be stored.
    """
    with translate("create an API key"):
        older = not await has_table(db, TABLE)
        if older and terms != Terms(terms.scopes):
            await _require(db)
        async with db.transaction():
            asked = (name, secret.key_hash, list(terms.scopes))
            if older:
                made = await db.fetchval(_CREATE_BEFORE, *asked)
            else:
                made = await db.fetchval(_CREATE, *asked, terms.expires_in, terms.rate, terms.burst, by)
            if made is None:
                raise KeyExistsError(
                    f"there is an API key {name!r} already (revoked ones count); take another name"
                )
            if not older:
                await db.execute(_ADD, secret.key_id, secret.key_hash, name, by)
    return await _one(db, name)


async def rotate(db: AnyConnection, name: str, secret: NewSecret, overlap: timedelta, by: str) -> ApiKey:
    """Give a caller a new key; its others end after `overlap`, or earlier if they would have.

    Raises:
        UnknownKeyError: there is none of that name.
        KeyEndedError: it was revoked, or has expired.
        MigrationError: the schema is that of the release before.
        DatabaseAwayError: not known to be done.
    """
    await _require(db)
    with translate("rotate an API key"):
        async with db.transaction():
            live = await db.fetchval(_LOCK, name)
            if live is None:
                raise _unknown(name)
            if not live:
                raise KeyEndedError(f"the API key {name!r} was revoked or has expired: create another one")
            await db.execute(_END, name, overlap)
            await db.execute(_ADD, secret.key_id, secret.key_hash, name, by)
            await db.execute(_NEWEST, name, secret.key_hash)
    return await _one(db, name)


async def limit(db: AnyConnection, name: str, rate: float | None, burst: int | None) -> ApiKey:
    """Set how often a caller may ask; None for what the settings say, a rate of 0 for no limit.

    Raises:
        UnknownKeyError: there is none of that name.
        MigrationError: the schema is that of the release before.
        DatabaseAwayError: not known to be done.
    """
    await _require(db)
    with translate("limit an API key"):
        if await db.fetchval(_LIMIT, name, rate, burst) is None:
            raise _unknown(name)
    return await _one(db, name)


async def revoke(db: AnyConnection, name: str, by: str) -> ApiKey:
    """Refuse every key of a caller; revoking it again changes nothing.

    Raises:
        UnknownKeyError: there is none of that name.
        DatabaseAwayError: not known to be revoked.
    """
    with translate("revoke an API key"):
        if await has_table(db, TABLE):
            found = await db.fetchval(_REVOKE, name, by)
        else:
            found = await db.fetchval(_REVOKE_BEFORE, name)
        if found is None:
            raise _unknown(name)
    return await _one(db, name)


async def list_keys(db: AnyConnection, name: str | None = None) -> tuple[ApiKey, ...]:
    """All callers, or the one of that name, oldest first, revoked ones included.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("list API keys"):
        statement = _LIST if await has_table(db, TABLE) else _LIST_BEFORE
        return tuple(_key(row) for row in await db.fetch(statement, name))


async def _one(db: AnyConnection, name: str) -> ApiKey:
    (found,) = await list_keys(db, name)
    return found


async def _require(db: AnyConnection) -> None:
    with translate("look at the schema"):
        if not await has_table(db, TABLE):
            raise MigrationError("changing API keys needs the schema of this release. Run: storage migrate")


def _unknown(name: str) -> UnknownKeyError:
    return UnknownKeyError(f"there is no API key {name!r}; see: api-keys list")


def _key(row: asyncpg.Record) -> ApiKey:
    known = {name: row[name] for name in row.keys() & ApiKey.__dataclass_fields__.keys()}
    secrets = tuple(json.loads(row["secrets"]))
    return ApiKey(**known | {"scopes": tuple(row["scopes"]), "secrets": secrets})
