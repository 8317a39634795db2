"""`api-keys create`, `list`, `revoke`."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

import click

from api.auth import SCOPES, hash_key, new_key
from storage import api_keys
from storage.api_keys import ApiKey, KeyExistsError, UnknownKeyError
from storage.errors import StorageError, translate_all
from storage.pool import AnyConnection, connect, where
from storage.schema import require_level
from storage.settings import StorageSettings
from storage.times import shown_time
from topology import exits
from topology.errors import WrongSettingsError
from topology.settings import read_settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
T = TypeVar("T")
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Keys of the HTTP API.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 4 the name is taken.
    """


@main.command()
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="May be given again; default: all."
)
@as_json
def create(name: str, scopes: tuple[str, ...], as_json: bool) -> None:
    """Make a key for NAME and print it: this once, since only its hash is stored."""
    if not NAME.fullmatch(name):
        raise click.BadParameter("letters, digits and . _ @ -, at most 100", param_hint="NAME")
    key = new_key()
    granted = tuple(dict.fromkeys(scopes)) or SCOPES
    made = _run(lambda db: api_keys.create(db, name, hash_key(key), granted))
    click.echo(json.dumps({**_shown(made), "key": key}) if as_json else key)


@main.command("list")
@as_json
def list_command(as_json: bool) -> None:
    """All keys, the revoked ones too."""
    for key in _run(api_keys.list_keys):
        if as_json:
            click.echo(json.dumps(_shown(key)))
        else:
            state = f"revoked {shown_time(key.revoked_at)}" if key.revoked_at else "active"
            click.echo(f"{key.name:24} {','.join(key.scopes):24} {shown_time(key.created_at)} {state}")


@main.command()
@click.argument("name")
def revoke(name: str) -> None:
    """Refuse the key of NAME from now on."""
    key = _run(lambda db: api_keys.revoke(db, name))
    click.echo(f"revoked {key.name} at {shown_time(key.revoked_at)}")


def _run(work: Callable[[AnyConnection], Awaitable[T]]) -> T:
    settings = _settings()

    async def run() -> T:
        with translate_all("connect"):
            connection = await connect(settings, "redrive-api-keys")
        try:
            with translate_all("use the database"):
                await require_level(connection)
                return await work(connection)
        finally:
            await connection.close()

    try:
        return asyncio.run(run())
    except KeyExistsError as error:
        _fail(str(error), exits.CONFLICT)
    except UnknownKeyError as error:
        _fail(str(error), exits.FAILED)
    except StorageError as error:
        _fail(f"{where(settings)}: {error}", exits.FAILED)


def _settings() -> StorageSettings:
    try:
        return read_settings(StorageSettings)
    except WrongSettingsError as error:
        click.echo(str(error), err=True)
        sys.exit(exits.USAGE)


def _fail(text: str, code: int) -> NoReturn:
    click.echo(f"api-keys: {text}", err=True)
    sys.exit(code)


def _shown(key: ApiKey) -> dict[str, object]:
    return {
        "name": key.name,
        "scopes": list(key.scopes),
        "created_at": shown_time(key.created_at),
        "revoked_at": shown_time(key.revoked_at),
    }
