"""Whole databases, made and dropped by name: for runs that bring their own into somebody's server."""

from __future__ import annotations

from urllib.parse import urlsplit

import asyncpg

from storage.errors import StorageError, translate

TIMEOUT_S = 10.0


class NotAllowedError(StorageError):
    """The role lacks a right; the message says which."""


def with_database(url: str, name: str) -> str:
    """The same server and log-in, another database."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


async def create_database(url: str, name: str) -> None:
    """Makes the database `name`, empty, in the server of `url`.

    Raises:
        NotAllowedError: the role of `url` may not create databases.
        DatabaseAwayError: no connection.
    """
    try:
        await _execute(url, f"CREATE DATABASE {_quoted(name)}")
    except asyncpg.InsufficientPrivilegeError as error:
        role = urlsplit(url).username or "of the URL"
        raise NotAllowedError(
            f"the role {role} may not create a database; as an administrator: ALTER ROLE {role} CREATEDB"
        ) from error


async def drop_database(url: str, name: str) -> None:
    """Drops the database `name` if there is one, and ends the sessions that still use it."""
    await _execute(url, f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")


async def server_version(url: str) -> str:
    """Such as "18.1"."""
    with translate("ask for the version"):
        connection = await asyncpg.connect(url, timeout=TIMEOUT_S)
        try:
            return str(await connection.fetchval("SHOW server_version")).partition(" ")[0]
        finally:
            await connection.close()


async def _execute(url: str, sql: str) -> None:
    with translate("create or drop a database"):
        connection = await asyncpg.connect(url, timeout=TIMEOUT_S)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
