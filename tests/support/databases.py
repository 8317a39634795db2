"""One template database migrated once, cloned for each test."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg

import storage.migrate
from tests.support import background
from tests.support.kept import ask

ROOT = Path(__file__).parents[2]
MIGRATE = "from storage.cli import main; main(['migrate'])"


@dataclass(frozen=True)
class Database:
    """A database of one test. Each `execute` takes a fresh connection, each `fetch` too unless in a wait."""

    url: str
    name: str
    admin_url: str

    def fetch(self, sql: str, *arguments: object) -> list[dict[str, Any]]:
        def question(connection: asyncpg.Connection) -> list[dict[str, Any]]:
            return [dict(row) for row in background.run(connection.fetch(sql, *arguments))]

        return ask(self.url, lambda: _connection(self.url), question, _is_lost)

    def value(self, sql: str, *arguments: object) -> Any:
        """The first column of the only row."""
        (row,) = self.fetch(sql, *arguments)
        return next(iter(row.values()))

    def execute(self, sql: str, *arguments: object) -> None:
        background.run(_fetch(self.url, sql, *arguments))

    def url_of(self, user: str, password: str) -> str:
        """The same, as another user."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=f"{user}:{password}@{parts.hostname}:{parts.port}").geturl()

    @contextmanager
    def locked(self, sql: str) -> Iterator[None]:
        """What `sql` locks, until the block ends."""
        held = background.run(asyncpg.connect(self.url, timeout=10))
        try:
            background.run(held.execute(f"begin; {sql}"))
            yield
        finally:
            background.run(held.close())

    def empty(self) -> None:
        """No row is left but what running processes stand on: migrations, keys, drain sessions."""
        tables = self.fetch(
            "select 'redrive.' || tablename as name from pg_tables where schemaname = 'redrive'"
            " and tablename not in ('schema_migrations', 'api_keys', 'api_secrets', 'drain_sessions')"
        )
        truncate = f"truncate {', '.join(table['name'] for table in tables)} restart identity cascade"

        def emptied() -> bool:
            # What a running process asks meanwhile may hold one table and want another.
            with contextlib.suppress(asyncpg.DeadlockDetectedError):
                self.execute(truncate)
                return True
            return False

        assert any(emptied() for _ in range(5)), "a deadlock each time"

    def cut_connections(self) -> int:
        """Ends every connection to this database from the server's side; tells how many."""
        sql = "select count(pg_terminate_backend(pid)) as cut from pg_stat_activity where datname = $1"
        rows = background.run(_fetch(self.admin_url, sql, self.name))
        return int(rows[0]["cut"])


def execute_as_admin(database: Database, sql: str) -> None:
    """In another database of the same server, which is not read-only."""
    background.run(_fetch(database.admin_url, sql))


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def migrate_to(url: str, level: int) -> None:
    """Apply migrations up to this level."""

    async def run() -> None:
        connection = await asyncpg.connect(url)
        try:
            await storage.migrate.migrate(connection, to=level)
        finally:
            await connection.close()

    background.run(run())


@contextmanager
def migrated_template(admin_url: str) -> Iterator[str]:
    """Name of a fresh database at the newest migration; dropped afterwards."""
    with fresh_database(admin_url, prefix="redrive_template") as database:
        migrate(database.url)
        yield database.name


@contextmanager
def fresh_database(
    admin_url: str, template: str | None = None, prefix: str = "redrive_test"
) -> Iterator[Database]:
    """A database, empty or a clone of `template`; dropped afterwards with whatever is still connected."""
    name = f"{prefix}_{secrets.token_hex(6)}"
    clause = f' template "{template}"' if template else ""
    background.run(_fetch(admin_url, f'create database "{name}"{clause}'))
    try:
        yield Database(url=with_database(admin_url, name), name=name, admin_url=admin_url)
    finally:
        background.run(_fetch(admin_url, f'drop database if exists "{name}" with (force)'))


def migrate(url: str) -> None:
    """Runs the real `storage migrate` against `url`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
    environment |= {"REDRIVE_DATABASE_URL": url, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", MIGRATE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"storage migrate ended with {done.returncode}:\n{done.stdout}{done.stderr}")


@contextmanager
def _connection(url: str) -> Iterator[asyncpg.Connection]:
    # Without prepared statements, which a migration would make stale.
    opened = background.run(asyncpg.connect(url, timeout=10, statement_cache_size=0))
    try:
        yield opened
    finally:
        background.run(opened.close())


def _is_lost(connection: asyncpg.Connection, error: Exception) -> bool:
    ends = (OSError, asyncpg.InterfaceError, asyncpg.PostgresConnectionError)
    return connection.is_closed() or isinstance(error, (*ends, asyncpg.OperatorInterventionError))


async def _fetch(url: str, sql: str, *arguments: object) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return [dict(row) for row in await connection.fetch(sql, *arguments)]
    finally:
        await connection.close()
