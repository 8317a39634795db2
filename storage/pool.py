"""Connections: one pool per process and event loop, and the wait for a database that is not there yet."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from storage import silence
from storage.connection import Connection
from storage.connection import connect as connect_to
from storage.errors import (
    DRIVER_ERRORS,
    DatabaseAwayError,
    MigrationError,
    is_transient,
    translate,
    translate_all,
)
from storage.schema import off_at, require_level
from storage.settings import StorageSettings

# The names by which other packages call the driver's types, and a pooled connection is one too.
Pool = asyncpg.Pool
AnyConnection = asyncpg.Connection | PoolConnectionProxy
Say = Callable[[str], None]
log = logging.getLogger("redrive.storage")
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 5.0
# A planner that knows of an empty table, or of none yet, reads all of it for a batch of keys, and goes on so
# while it fills: updating 250 jobs of 15,000 took 300 ms, by key 3 ms. A plan is made once, for any values;
# compiling it would take longer than running it.
BY_KEY = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
# Of one question at the start of a connection.
TIMEOUT_S = 5.0


async def connect(
    settings: StorageSettings, name: str, *, silent_s: float | None = None
) -> asyncpg.Connection:
    """One connection of its own (locks, LISTEN, the worker's ledger), shown as `name` in pg_stat_activity.

    Args:
        silent_s: Postgres ends it, with its locks, when it is not heard of for so long.
    """
    return await connect_to(
        settings.dsn,
        timeout=settings.database_timeout_s,
        server_settings={"application_name": name} | silence.limits(settings.dsn, silent_s=silent_s),
    )


async def connect_to_write(settings: StorageSettings, name: str) -> asyncpg.Connection:
    """The same, of a server that takes writes now.

    Raises:
        DatabaseAwayError: it is read-only: a standby, or told so (default_transaction_read_only).
    """
    connection = await connect(settings, name)
    if await connection.fetchval("SELECT current_setting('transaction_read_only')::bool", timeout=TIMEOUT_S):
        connection.terminate()
        raise DatabaseAwayError("Postgres takes no writes: it is read-only")
    return connection


async def open_pool(
    settings: StorageSettings,
    name: str,
    *,
    lock_timeout_s: float | None = None,
    by_key: bool = False,
    stateless: bool = False,
    idle_s: float = silence.IDLE_S,
) -> asyncpg.Pool:
    """A pool whose connections carry `name` as application_name. The caller closes it.

    Args:
        lock_timeout_s: a statement that waits longer for another transaction fails, and may be tried again.
        by_key: for statements that find rows by keys: see `BY_KEY`.
        stateless: whoever borrows a connection leaves nothing in its session (SET, LISTEN, session locks), so
            that giving it back costs no round trip. An open transaction is rolled back all the same.
        idle_s: Postgres ends a transaction that waits longer for its next statement, and its connection.

    Raises:
        OSError, asyncpg.PostgresError: the database cannot be reached; see `wait_for_database`.
    """
    waits = {} if lock_timeout_s is None else {"lock_timeout": silence.milliseconds(lock_timeout_s)}
    planning = BY_KEY if by_key else {}
    pool: asyncpg.Pool = await asyncpg.create_pool(
        settings.dsn,
        min_size=settings.database_pool_min,
        max_size=settings.database_pool_max,
        timeout=settings.database_timeout_s,
        connect=connect_to,
        connection_class=Connection,
        server_settings={"application_name": name}
        | waits
        | planning
        | silence.limits(settings.dsn, idle_s=idle_s),
        reset=_nothing_to_reset if stateless else None,
    )
    return pool


async def _nothing_to_reset(_: asyncpg.Connection) -> None:
    """asyncpg has rolled back by then."""


@contextmanager
def watched(connection: AnyConnection, timeout_s: float) -> Iterator[None]:
    """Drop `connection` when what is inside takes longer; it then fails with an error that is transient.

    asyncpg's own timeouts ask the server to cancel and wait for its answer, which a server or network
    that is stuck does not give.
    """
    timer = asyncio.get_running_loop().call_later(timeout_s, connection.terminate)
    try:
        yield
    finally:
        timer.cancel()


@asynccontextmanager
async def lend(source: Pool | AnyConnection) -> AsyncIterator[AnyConnection]:
    """A connection of the pool, or the given one itself, for a function that needs a transaction."""
    if isinstance(source, asyncpg.Pool):
        async with source.acquire() as connection:
            yield connection
    else:
        yield source


@asynccontextmanager
async def borrow(pool: Pool, timeout_s: float, *, for_s: float | None = None) -> AsyncIterator[AnyConnection]:
    """A connection, within `timeout_s` seconds, for a few statements that take as long at most, or `for_s`.

    Raises:
        DatabaseAwayError: none was free or could be made in time, or it was lost or too slow.
    """
    with translate("use a connection"):
        async with pool.acquire(timeout=timeout_s) as connection:
            with watched(connection, for_s or timeout_s):
                yield connection


def where(settings: StorageSettings) -> str:
    """The database's address without user or password, for messages."""
    url = urlsplit(settings.dsn)
    return f"{url.hostname or 'localhost'}:{url.port or 5432}{url.path}"


@asynccontextmanager
async def migrated_pool(settings: StorageSettings, name: str) -> AsyncIterator[Pool]:
    """A pool for a command that does not wait; closed at the end.

    Raises:
        DatabaseAwayError: Postgres cannot be reached, or went away meanwhile.
        DatabaseRefusedError: the server refuses the log-in or the database's name, or a statement.
        MigrationError: the schema is below what this release needs.
    """
    with translate_all("use the database"):
        pool = await open_pool(settings, name)
        try:
            async with pool.acquire() as connection:
                await require_level(connection)
            yield pool
        finally:
            await pool.close()


async def ready(settings: StorageSettings) -> int:
    """The schema's level.

    Raises:
        DatabaseAwayError: Postgres cannot be reached.
        DatabaseRefusedError: the server refuses the log-in or the database's name.
        MigrationError: the schema is below what this release needs.
    """
    with translate_all("connect"):
        connection = await connect(settings, "redrive-check")
        try:
            return await require_level(connection)
        finally:
            await connection.close()


async def wait_for_database(settings: StorageSettings, say: Say) -> int:
    """The schema's level, once the database answers and is migrated; until then try with back-off.

    Says new reasons to wait, and what is off on a schema of the previous release.

    A wrong password or database name is waited for too, since a database that is being set up gives
    the same answers; the message says which it is.
    """
    wait, said = FIRST_WAIT_S, ""
    while True:
        try:
            connection = await connect(settings, "redrive-wait")
            try:
                level = await require_level(connection)
            finally:
                await connection.close()
        except MigrationError as error:
            reason = f": {error}"
        except DRIVER_ERRORS as error:
            kind = "" if is_transient(error) else f" ({type(error).__name__})"
            reason = f"{kind}: {error or 'no answer'}"
        else:
            if off := off_at(level):
                log.warning("the schema at %s is %s", where(settings), off, extra={"action": "schema_older"})
            return level
        if reason != said:
            said = reason
            say(f"waiting for the database at {where(settings)}{reason}")
        await asyncio.sleep(wait * random.uniform(0.75, 1.25))  # noqa: S311 - jitter, not a secret
        wait = min(wait * 2, LONGEST_WAIT_S)
