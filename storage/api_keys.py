"""API keys, stored as hashes only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from storage.errors import StorageError, translate
from storage.pool import AnyConnection

CREATE = """
INSERT INTO redrive.api_keys (name, key_hash, scopes) VALUES ($1, $2, $3)
ON CONFLICT (name) DO NOTHING
RETURNING name, scopes, created_at, revoked_at
"""
BY_HASH = "SELECT name, scopes FROM redrive.api_keys WHERE key_hash = $1 AND revoked_at IS NULL"
LIST = "SELECT name, scopes, created_at, revoked_at FROM redrive.api_keys ORDER BY created_at, id"
REVOKE = """
UPDATE redrive.api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE name = $1
RETURNING name, scopes, created_at, revoked_at
"""


class KeyExistsError(StorageError):
    """An API key of that name exists (or existed: a name on record is not given twice)."""


class UnknownKeyError(StorageError):
    """There is no API key of that name."""


@dataclass(frozen=True)
class Principal:
    """Whom a key stands for, and what it may do."""

    name: str
    scopes: frozenset[str]


@dataclass(frozen=True)
class ApiKey:
    """A key as it is listed; the key itself is known to its holder alone."""

    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    revoked_at: datetime | None


async def create(db: AnyConnection, name: str, key_hash: bytes, scopes: Sequence[str]) -> ApiKey:
    """Store the hash of a new key.

    Raises:
        KeyExistsError: the name is taken.
        DatabaseAwayError: nothing is known to be stored.
    """
    with translate("create an API key"):
        row = await db.fetchrow(CREATE, name, key_hash, list(scopes))
    if row is None:
        raise KeyExistsError(f"there is an API key {name!r} already (revoked ones count); take another name")
    return _key(row)


async def find(db: AnyConnection, key_hash: bytes) -> Principal | None:
    """Who holds the key with that hash; None when nobody does, or no longer.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("look up an API key"):
        row = await db.fetchrow(BY_HASH, key_hash)
    return None if row is None else Principal(row["name"], frozenset(row["scopes"]))


async def list_keys(db: AnyConnection) -> tuple[ApiKey, ...]:
    """All keys, oldest first, revoked ones included.

    Raises:
        DatabaseAwayError: try again.
    """
    with translate("list API keys"):
        return tuple(_key(row) for row in await db.fetch(LIST))


async def revoke(db: AnyConnection, name: str) -> ApiKey:
    """Revoke a key; revoking it again changes nothing.

    Raises:
        UnknownKeyError: there is none of that name.
        DatabaseAwayError: not known to be revoked.
    """
    with translate("revoke an API key"):
        row = await db.fetchrow(REVOKE, name)
    if row is None:
        raise UnknownKeyError(f"there is no API key {name!r}; see: api-keys list")
    return _key(row)


def _key(row: asyncpg.Record) -> ApiKey:
    return ApiKey(row["name"], tuple(row["scopes"]), row["created_at"], row["revoked_at"])
