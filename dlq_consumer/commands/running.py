"""What the subcommands share: settings by way of the entry point, one loop, errors as exit codes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol, TypeVar

import click
from pydantic_settings import BaseSettings

from storage.errors import DatabaseAwayError, StorageError, translate
from storage.pool import Pool, open_pool
from storage.settings import StorageSettings
from topology import exits

S = TypeVar("S", bound=BaseSettings)
T = TypeVar("T")


class Load(Protocol):
    """Builds settings, or exits naming what is wrong with them."""

    def __call__(self, kind: type[S]) -> S: ...


def with_database(load: Load, work: Callable[[Pool], Awaitable[T]]) -> T:
    """Run `work` with a pool. Exits 1 when the database is away, 130 when interrupted."""
    settings = load(StorageSettings)

    async def run() -> T:
        with translate("connect"):
            pool = await open_pool(settings, "redrive-dlq-cli")
        try:
            return await work(pool)
        finally:
            await pool.close()

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except DatabaseAwayError as error:
        fail(str(error))
    except StorageError as error:
        fail(str(error))


def fail(text: str, code: int = exits.FAILED) -> NoReturn:
    """Say what went wrong on standard error and exit."""
    click.echo(f"dlq: {text}", err=True)
    sys.exit(code)
