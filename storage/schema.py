"""Which schemas this release works on, so that two adjacent releases work side by side.

A release's level is that of its last migration. It works on a schema that is up to one release older
(what it lacks is off) and on every newer one, until a migration takes away what the release needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from storage.errors import MigrationError, translate
from storage.migrate import left_behind, migrations

P = ParamSpec("P")
T = TypeVar("T")
# The level of the previous release: raised with each release, never by a migration.
WORKS_FROM = 5


@dataclass(frozen=True)
class Schema:
    """What a database has: its newest migration, and the oldest level of a release that it still serves."""

    level: int
    oldest: int = 0


async def has_table(
    connection: asyncpg.Connection | asyncpg.Pool | PoolConnectionProxy,
    name: str,
    *,
    timeout_s: float | None = None,
) -> bool:
    """Whether there is a table that the release before does not know: asking ends no transaction."""
    found = await connection.fetchval("SELECT to_regclass($1)", f"redrive.{name}", timeout=timeout_s)
    return found is not None


async def read_schema(connection: asyncpg.Connection | PoolConnectionProxy) -> Schema:
    """What the database has; level 0 for an empty one."""
    if not await has_table(connection, "schema_migrations"):
        return Schema(0)
    # By way of jsonb, since an older release made the table without this column.
    row = await connection.fetchrow(
        "SELECT coalesce(max(level), 0) AS level, coalesce(max((to_jsonb(m) ->> 'oldest')::int), 0) AS oldest"
        " FROM redrive.schema_migrations AS m"
    )
    assert row is not None
    return Schema(row["level"], row["oldest"])


def check_schema(schema: Schema, *, release: int, works_from: int) -> None:
    """Whether a release of level `release` works on it.

    Raises:
        MigrationError: it does not; with what to do.
    """
    if schema.oldest > release:
        raise left_behind(schema.oldest, release)
    if schema.level < works_from:
        wanted = f"{release}" if works_from == release else f"{release}, and {works_from} at least"
        raise MigrationError(
            f"the schema is at level {schema.level}, this release needs {wanted}. Run: storage migrate"
        )


async def require_level(connection: asyncpg.Connection | PoolConnectionProxy) -> int:
    """The database's level.

    Raises:
        MigrationError: this release does not work on it.
    """
    schema = await read_schema(connection)
    check_schema(schema, release=len(migrations()), works_from=WORKS_FROM)
    return schema.level


async def require_schema(connection: asyncpg.Connection | PoolConnectionProxy) -> None:
    """The same for whoever needs no more than that.

    Raises:
        MigrationError: this release does not work on it.
        DatabaseAwayError: try again.
    """
    with translate("read the schema's level"):
        await require_level(connection)


def off_at(level: int) -> str | None:
    """What of this release is off on a schema of `level`, and what to do; None when nothing is."""
    off = [migration.off_without for migration in migrations()[level:] if migration.off_without]
    if not off:
        return None
    return f"at level {level} of {len(migrations())}; off until `storage migrate`: {'; '.join(off)}"


def off_without_table(
    otherwise: Callable[[], Any],
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """For queries over a table that the release before does not have: without it, `otherwise()`."""

    def wrap(query: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @functools.wraps(query)
        async def ask(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return await query(*args, **kwargs)
            except asyncpg.UndefinedTableError:
                nothing: T = otherwise()
                return nothing

        return ask

    return wrap


@contextmanager
def needs_this_release(what: str) -> Iterator[None]:
    """For statements about what the release before does not have.

    Raises:
        MigrationError: they met its schema.
    """
    try:
        yield
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.CheckViolationError) as error:
        raise MigrationError(f"{what}: the schema is of an older release. Run: storage migrate") from error


def contraction_waits(level: int) -> bool:
    """Whether the next migration is one that takes something away, which `storage migrate` leaves."""
    return any(migration.oldest is not None for migration in migrations()[level : level + 1])
