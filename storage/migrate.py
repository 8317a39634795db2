"""Numbered SQL migrations, applied in order, each in its transaction, by one process at a time.

What a file may do, and how it says so, stands in storage/migrations/README.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import asyncpg

from storage.errors import MigrationError

# Any fixed number will do: it only has to be the same for every process that migrates.
_LOCK = 0x5EED_D1E5
_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_EXPANDS = re.compile(r"-- expand: (\S.*)")
_CONTRACTS = re.compile(r"-- contract: level (\d+)\b")
# A migration that waits for a lock makes everyone who comes after it wait: it gives up, and tries again.
LOCK_TIMEOUT_S = 3
LOCK_TRIES = 10

# `oldest` came later than the table.
_TABLE = """
CREATE SCHEMA IF NOT EXISTS redrive;
CREATE TABLE IF NOT EXISTS redrive.schema_migrations (level integer PRIMARY KEY, name text NOT NULL,
    digest text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());
ALTER TABLE redrive.schema_migrations ADD COLUMN IF NOT EXISTS oldest integer;
"""


@dataclass(frozen=True)
class Migration:
    """One SQL file. `level` is its number; `digest` tells whether an applied one was edited since."""

    level: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def off_without(self) -> str | None:
        """What this release leaves off on a schema without it."""
        match = _EXPANDS.match(self.sql)
        return match[1] if match else None

    @property
    def oldest(self) -> int | None:
        """For a migration that takes away: the lowest level of a release that works on afterwards."""
        match = _CONTRACTS.match(self.sql)
        return int(match[1]) if match else None


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


async def migrate(
    connection: asyncpg.Connection,
    *,
    to: int | None = None,
    contract: bool = False,
    known: Sequence[Migration] | None = None,
) -> list[Migration]:
    """Apply what is missing, up to level `to` (default: all), and return what was applied.

    Stops ahead of the first migration that takes something away, unless told to `contract` or the database
    is new. Safe to run from several processes at once: the second waits for the first.

    Args:
        known: the migrations of the release; by default this one's.

    Raises:
        MigrationError: an applied migration's text has changed since, the schema has left this release
            behind, or a table stayed locked.
    """
    known = migrations() if known is None else known
    done = []
    await connection.execute("SELECT pg_advisory_lock($1)", _LOCK)
    try:
        await connection.execute(_TABLE)
        rows = await connection.fetch("SELECT level, digest, oldest FROM redrive.schema_migrations")
        oldest = max((row["oldest"] or 0 for row in rows), default=0)
        if oldest > len(known):
            raise left_behind(oldest, len(known))
        for migration in _missing(known, {row["level"]: row["digest"] for row in rows}):
            if to is not None and migration.level > to:
                break
            if migration.oldest is not None and rows and not contract:
                break
            await _apply(connection, migration)
            done.append(migration)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", _LOCK)
    return done


def left_behind(oldest: int, level: int) -> MigrationError:
    """The schema has lost what a release of `level` needs."""
    return MigrationError(
        f"the schema needs a release of level {oldest} or newer, this one is of level {level}: "
        "a later release has taken away what it needs. Start the newer release"
    )


def _missing(known: Sequence[Migration], applied: dict[int, str]) -> Iterator[Migration]:
    for migration in known:
        if migration.level not in applied:
            yield migration
        elif applied[migration.level] != migration.digest:
            raise MigrationError(
                f"{migration.name} was changed after it was applied here; add a new migration instead"
            )


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    for left in reversed(range(LOCK_TRIES)):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")
                await connection.execute(migration.sql)
                await connection.execute(
                    "INSERT INTO redrive.schema_migrations (level, name, digest, oldest)"
                    " VALUES ($1, $2, $3, $4)",
                    migration.level,
                    migration.name,
                    migration.digest,
                    migration.oldest,
                )
        except asyncpg.LockNotAvailableError as error:
            if not left:
                raise MigrationError(
                    f"{migration.name}: a table is locked by another transaction ({error}). "
                    "End it (pg_stat_activity shows it) and run again: storage migrate"
                ) from error
            await asyncio.sleep(1)  # let those through that queue behind us
        else:
            return
