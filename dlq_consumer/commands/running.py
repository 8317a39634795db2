"""What the subcommands share: settings by way of the entry point, one loop, errors as exit codes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn, Protocol, TypeVar

import click
from pydantic_settings import BaseSettings

from dlq_consumer.commands.recording import on_record
from storage.errors import DatabaseAwayError, DatabaseRefusedError, MigrationError, StorageError
from storage.pool import Pool, migrated_pool, where
from storage.settings import StorageSettings
from topology import exits
from topology.errors import InvalidTopologyError
from topology.settings import TopologySettings, load_topology
from topology.spec import Topology

S = TypeVar("S", bound=BaseSettings)
T = TypeVar("T")
# Errors of one letter or replay name it; these do not say which database they mean.
_OF_THE_DATABASE = (DatabaseAwayError, DatabaseRefusedError, MigrationError)


class Load(Protocol):
    """Builds settings, or exits naming what is wrong with them."""

    def __call__(self, kind: type[S]) -> S: ...


def with_database(load: Load, work: Callable[[Pool], Awaitable[T]], *, changes: bool = False) -> T:
    """Run `work` with a pool; what `changes` something is put on record before (`dlq audit`).

    Exits 1 when the database is away, refuses or is not migrated, 130 when interrupted.
    """
    settings = load(StorageSettings)

    async def run() -> T:
        async with migrated_pool(settings, "redrive-dlq-cli") as pool:
            return await (on_record(pool, work) if changes else work(pool))

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        sys.exit(exits.INTERRUPTED)
    except StorageError as error:
        fail(f"{where(settings)}: {error}" if isinstance(error, _OF_THE_DATABASE) else str(error))


def topology_of(load: Load) -> Topology:
    """The topology that the settings name; exits 2 when it cannot be had."""
    try:
        return load_topology(load(TopologySettings))
    except InvalidTopologyError as error:
        fail(str(error), exits.USAGE)


def management_url(broker: TopologySettings) -> str:
    """Where stuck letters are looked for; exits 2 when it is not set."""
    if broker.management_url is None:
        where = "not set, in the environment or in .env: stuck letters are seen there only"
        fail(f"REDRIVE_MANAGEMENT_URL: {where}", exits.USAGE)
    return broker.management_url.get_secret_value()


def fail(text: str, code: int = exits.FAILED) -> NoReturn:
    """Say what went wrong on standard error and exit."""
    click.echo(f"dlq: {text}", err=True)
    sys.exit(code)
