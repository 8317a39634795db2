"""The exceptions of this package: one root, and the driver's errors translated at the edge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from asyncpg.pool import PoolConnectionProxy


class StorageError(Exception):
    """Something about Postgres went wrong."""


class DatabaseAwayError(StorageError):
    """Postgres cannot be reached, or gave up the connection: try again later, nothing is decided."""


class ConflictError(DatabaseAwayError):
    """Another transaction was in the way (a deadlock, a serialization failure, a lock not waited for)."""


class PoolExhaustedError(StorageError):
    """A job holds every connection of its process, and asks for one more."""


class DatabaseRefusedError(StorageError):
    """Postgres answers and refuses: the log-in, the database's name, a right. Waiting does not help."""


class MigrationError(StorageError):
    """The schema is not at the level that this release needs, or a migration cannot be applied."""


# Class 57 is operator intervention (shutdown, crash, idle session ended), 53 a lack of resources,
# 08 a lost connection, 25006 a read-only transaction (a standby), 25P03 one that idled for too long, 40 a
# rollback to be tried again.
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_TRANSIENT_CLASSES = ("08", "53", "57", "40")
_TRANSIENT_CODES = ("25006", "25P03", "55P03")
_CONFLICTS = ("40", "55")
# Of these, what a statement may bring upon itself: its timeout, its limit on temporary files.
_OF_THE_STATEMENT = ("57014", "53400")


DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
# Of a new connection: its log-in or its database's name. Until somebody mends that, Postgres is away.
REFUSALS = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)


def is_transient(error: BaseException) -> bool:
    """Whether the same statement may succeed later, without anything being changed about it."""
    if isinstance(error, asyncpg.PostgresError):
        code = error.sqlstate or ""
        return code[:2] in _TRANSIENT_CLASSES or code in _TRANSIENT_CODES
    if isinstance(error, asyncpg.InterfaceError):
        # asyncpg reports a connection that died between two statements this way.
        text = str(error)
        return any(word in text for word in ("closed", "closing", "connection"))
    # Its state machine is confused by a connection that was cut at a bad moment; a new one is not.
    return isinstance(error, asyncpg.InternalClientError | OSError | TimeoutError)


def said(error: BaseException) -> str:
    """The error without the row that broke a constraint: it may hold a payload or a key's hash."""
    is_of_a_row = isinstance(error, asyncpg.IntegrityConstraintViolationError)
    return str(error.args[0]) if is_of_a_row and error.args else str(error)


@contextmanager
def translate(what: str) -> Iterator[None]:
    """Turn connection-level errors inside into `DatabaseAwayError`; others pass unchanged.

    Args:
        what: the operation, for the message ("claim 12 jobs").
    """
    try:
        yield
    except DRIVER_ERRORS as error:
        if not is_transient(error):
            raise
        if isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "")[:2] in _CONFLICTS:
            raise ConflictError(f"another transaction was in the way ({what}): {error}") from error
        raise DatabaseAwayError(f"Postgres is away ({what}): {error or type(error).__name__}") from error


@contextmanager
def translate_in_task(what: str, connection: asyncpg.Connection | PoolConnectionProxy) -> Iterator[None]:
    """Like `translate`, around code or statements of a task's: as an outage, its own failures would come
    again for ever.

    These pass unchanged: what a statement brings upon itself; errors of sockets while `connection` is open,
    which are those of another server.
    """
    try:
        yield
    except DRIVER_ERRORS as error:
        if isinstance(error, asyncpg.PostgresError):
            own = error.sqlstate in _OF_THE_STATEMENT
        else:
            own = not _is_lost(connection)
        if own:
            raise
        with translate(what):
            raise


def _is_lost(connection: asyncpg.Connection | PoolConnectionProxy) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # lost, and taken back by the pool: what is left refuses every call
        return True


@contextmanager
def translate_all(what: str) -> Iterator[None]:
    """Like `translate`, and any other error of the driver becomes `DatabaseRefusedError`: for commands."""
    try:
        with translate(what):
            yield
    except DRIVER_ERRORS as error:
        raise DatabaseRefusedError(
            f"Postgres refuses ({what}): {said(error) or 'no reason given'} ({type(error).__name__})"
        ) from error
