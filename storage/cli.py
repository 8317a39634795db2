"""`storage migrate` and `storage check`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg
import click
from pydantic import ValidationError

from storage.errors import MigrationError, is_transient
from storage.migrate import Migration, migrate
from storage.pool import connect, where
from storage.schema import contraction_waits, off_at, require_level
from storage.settings import StorageSettings
from storage.silence import SILENT_S

EXIT_FAILED = 1
EXIT_USAGE = 2


def load_settings() -> StorageSettings:
    """The settings, or exit 2 with the variables that are wrong."""
    try:
        return StorageSettings()  # type: ignore[call-arg]  # pydantic-settings reads the environment
    except ValidationError as error:
        for problem in error.errors():
            name = "REDRIVE_" + "_".join(str(part) for part in problem["loc"]).upper()
            click.echo(f"{name}: {problem['msg']}", err=True)
        sys.exit(EXIT_USAGE)


T = TypeVar("T")


def _run(settings: StorageSettings, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
    async def run() -> T:
        # It may hold the lock of `migrate`.
        connection = await connect(settings, "redrive-storage", silent_s=SILENT_S)
        try:
            return await work(connection)
        finally:
            await connection.close()

    return asyncio.run(run())


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Redrive's tables in Postgres."""


@main.command("migrate")
@click.option(
    "--wait", "wait_s", type=float, default=60.0, show_default=True, help="Seconds to wait for Postgres."
)
@click.option("--contract", is_flag=True, help="Also those that take away what the previous release needs.")
def migrate_command(wait_s: float, contract: bool) -> None:
    """Apply the migrations that are missing. Exit 0 also when there are none, 1 on failure.

    What takes something away is left, except in a new database, until no process of the previous release
    runs any more and you say --contract.
    """

    async def apply(connection: asyncpg.Connection) -> tuple[list[Migration], int]:
        return await migrate(connection, contract=contract), await require_level(connection)

    settings = load_settings()
    try:
        asyncio.run(_wait_until_reachable(settings, wait_s))
        done, level = _run(settings, apply)
    except (MigrationError, asyncpg.PostgresError, OSError) as error:
        click.echo(f"storage migrate: {where(settings)}: {error or type(error).__name__}", err=True)
        sys.exit(EXIT_FAILED)
    for migration in done:
        click.echo(f"applied {migration.name}")
    click.echo(f"schema: level {level} at {where(settings)}{_later(level)}")


@main.command("check")
def check_command() -> None:
    """One `thing: OK` a line; exit 1 with the next command to run."""
    settings = load_settings()
    try:
        version = _run(settings, lambda connection: connection.fetchval("SHOW server_version"))
        click.echo(f"database {where(settings)}: OK (PostgreSQL {version})")
        level = _run(settings, require_level)
        off = off_at(level)
        click.echo(f"schema: OK ({off or f'level {level}'}){_later(level)}")
    except (MigrationError, asyncpg.PostgresError, OSError) as error:
        click.echo(f"storage check: {where(settings)}: {error or type(error).__name__}", err=True)
        sys.exit(EXIT_FAILED)


def _later(level: int) -> str:
    if not contraction_waits(level):
        return ""
    return "; once nothing of the previous release runs: storage migrate --contract"


async def _wait_until_reachable(settings: StorageSettings, wait_s: float) -> None:
    """Return when a connection succeeds; after `wait_s` let the last error through."""
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        try:
            await (await connect(settings, "redrive-storage")).close()
        except (asyncpg.PostgresError, OSError) as error:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or not is_transient(error):
                raise
            click.echo(f"waiting for the database at {where(settings)}: {error or 'no answer'}", err=True)
            await asyncio.sleep(min(2.0, left))
        else:
            return
