"""Numbered SQL migrations, applied in order, each in its transaction, by one process at a time."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from storage.errors import MigrationError

# Any fixed number will do: it only has to be the same for every process that migrates.
_LOCK = 0x5EED_D1E5
_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True)
class Migration:
    """One SQL file. `level` is its number; `digest` tells whether an applied one was edited since."""

    level: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


@cache
def migrations() -> tuple[Migration, ...]:
    """Every migration of this release, in order. Numbers start at 1 and have no gap."""
    folder = files("storage").joinpath("migrations")
    found = [
        Migration(int(match[1]), file.name, file.read_text(encoding="utf-8"))
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if (match := _NAME.fullmatch(file.name))
    ]
    if [m.level for m in found] != list(range(1, len(found) + 1)):
        raise MigrationError(f"migrations are not numbered 1 to {len(found)}: {[m.name for m in found]}")
    return tuple(found)


async def applied_level(connection: asyncpg.Connection | PoolConnectionProxy) -> int:
    """The highest migration in the database, 0 in an empty one."""
    if await connection.fetchval("SELECT to_regclass('redrive.schema_migrations')") is None:
        return 0
    return int(await connection.fetchval("SELECT coalesce(max(level), 0) FROM redrive.schema_migrations"))


async def require_level(connection: asyncpg.Connection | PoolConnectionProxy) -> int:
    """The database's level.

    Raises:
        MigrationError: it is below what this release needs. A higher level is fine: migrations
            expand first, so that a release works beside the next one's schema.
    """
    level, needed = await applied_level(connection), len(migrations())
    if level < needed:
        raise MigrationError(
            f"the schema is at level {level}, this release needs {needed}. Run: storage migrate"
        )
    return level


async def migrate(connection: asyncpg.Connection, *, to: int | None = None) -> list[Migration]:
    """Apply what is missing, up to level `to` (default: all), and return what was applied.

    Safe to run from several processes at once: the second waits for the first.

    Raises:
        MigrationError: an applied migration's text has changed since.
    """
    done = []
    await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
    try:
        await connection.execute("CREATE SCHEMA IF NOT EXISTS redrive")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS redrive.schema_migrations (level integer PRIMARY KEY,"
            " name text NOT NULL, digest text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        rows = await connection.fetch("SELECT level, digest FROM redrive.schema_migrations")
        applied = {row["level"]: row["digest"] for row in rows}
        for migration in migrations():
            if migration.level in applied:
                if applied[migration.level] != migration.digest:
                    raise MigrationError(
                        f"{migration.name} was changed after it was applied here; add a new migration instead"
                    )
                continue
            if to is not None and migration.level > to:
                break
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO redrive.schema_migrations (level, name, digest) VALUES ($1, $2, $3)",
                    migration.level,
                    migration.name,
                    migration.digest,
                )
            done.append(migration)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)
    return done
