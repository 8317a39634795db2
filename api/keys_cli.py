"""`api-keys create`, `rotate`, `limit`, `list`, `revoke`."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import click

from api.auth import SCOPES
from api.keys import FRESH_S, PREFIX, hash_key, id_of, new_key
from storage import api_key_changes
from storage.api_key_changes import ApiKey, KeyEndedError, KeyExistsError, NewSecret, Terms, UnknownKeyError
from storage.errors import StorageError, translate_all
from storage.pool import AnyConnection, connect, where
from storage.recording import actor, recorded
from storage.schema import require_level
from storage.settings import StorageSettings
from storage.times import read_span, shown_time
from topology import exits
from topology.errors import WrongSettingsError
from topology.settings import read_settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
T = TypeVar("T")
as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


class Span(click.ParamType[timedelta]):
    """A length of time; with `zero` also `0s`, where nothing is to be left of one."""

    name = "TIME"

    def __init__(self, *, zero: bool = False) -> None:
        self.zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            found = timedelta() if value in ("0", "0s") else read_span(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not (found or self.zero):
            self.fail(f"{value} is no time to come", param, ctx)
        return found


class Rate(click.FloatRange):
    """`nan` is beyond no bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value} is no number", param, ctx)
        return found


RATE = click.option(
    "--rate",
    type=Rate(0, 1e8),
    help="Requests a second; 0: no limit. Default: REDRIVE_API_RATE_PER_S.",
)
BURST = click.option(
    "--burst", type=click.IntRange(1, 2**31 - 1), help="Requests at once. Default: REDRIVE_API_RATE_BURST."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Keys of the HTTP API.

    A key belongs to a NAME, which is who the caller is: what it did is on record by
    that name, and its idempotency keys are its own. A rotated key is the same caller.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 4 the name is taken or the key has ended.
    """


@main.command()
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="May be given again; default: all."
)
@click.option("--expires", type=Span(), help="It ends so long from now, such as 90d. Default: never.")
@RATE
@BURST
@as_json
def create(
    name: str,
    scopes: tuple[str, ...],
    expires: timedelta | None,
    rate: float | None,
    burst: int | None,
    as_json: bool,
) -> None:
    """Make a key for NAME and print it: this once, since only its hash is stored.

    Example: api-keys create shop --scope submit --expires 365d
    """
    if not NAME.fullmatch(name):
        raise click.BadParameter("letters, digits and . _ @ -, at most 100", param_hint="NAME")
    terms = Terms(tuple(dict.fromkeys(scopes)) or SCOPES, expires, rate, burst)
    key = new_key()
    made = _run(lambda db: api_key_changes.create(db, name, _stored(key), terms, actor()), name)
    _say_key(key, made, as_json)


@main.command()
@click.argument("name")
@click.option(
    "--overlap",
    type=Span(zero=True),
    default="24h",
    show_default=True,
    help="How long the old key works beside it; 0s: not at all.",
)
@as_json
def rotate(name: str, overlap: timedelta, as_json: bool) -> None:
    """Make a new key for NAME and print it; the old one works on for a while.

    Then `api-keys list` tells when the old one was last used: it ends by itself, or at once with another
    `rotate` or with `--overlap 0s`.

    Example: api-keys rotate shop --overlap 7d
    """
    key = new_key()
    made = _run(lambda db: api_key_changes.rotate(db, name, _stored(key), overlap, actor()), name)
    _say_key(key, made, as_json)


@main.command()
@click.argument("name")
@RATE
@BURST
@as_json
def limit(name: str, rate: float | None, burst: int | None, as_json: bool) -> None:
    """Set how often NAME may ask, of each API process. What is not given is as the settings say.

    Example: api-keys limit shop --rate 50 --burst 200
    """
    key = _run(lambda db: api_key_changes.limit(db, name, rate, burst), name)
    click.echo(json.dumps(key.as_json()) if as_json else f"{key.name}: {_limit(key)}")


@main.command("list")
@as_json
def list_command(as_json: bool) -> None:
    """All keys, the revoked ones too: their scopes, by whom and when they were made, when last used."""
    for key in _run(api_key_changes.list_keys):
        if as_json:
            click.echo(json.dumps(key.as_json()))
        else:
            for line in _lines(key):
                click.echo(line)


@main.command()
@click.argument("name")
def revoke(name: str) -> None:
    """Refuse every key of NAME, in all API processes within 2 seconds. It cannot be undone."""
    key = _run(lambda db: api_key_changes.revoke(db, name, actor()), name)
    click.echo(f"revoked {key.name} at {shown_time(key.revoked_at)}; refused everywhere within {FRESH_S:g} s")


def _stored(key: str) -> NewSecret:
    return NewSecret(id_of(key), hash_key(key))


def _say_key(key: str, made: ApiKey, as_json: bool) -> None:
    click.echo(json.dumps(made.as_json() | {"key": key}) if as_json else key)


def _lines(key: ApiKey) -> list[str]:
    state = (
        f"revoked {shown_time(key.revoked_at)} by {key.revoked_by or '?'}" if key.revoked_at else key.state
    )
    if key.expires_at and not key.revoked_at:
        state += f", expires {shown_time(key.expires_at)}"
    first = f"{key.name:24} {','.join(key.scopes):24} {shown_time(key.created_at)} {state}; {_limit(key)}"
    return [first, *(_secret(each) for each in key.secrets)]


def _secret(found: dict[str, Any]) -> str:
    end = "" if found["ends_at"] is None else f", {'ended' if found['ended'] else 'ends'} {found['ends_at']}"
    return (
        f"    {PREFIX}{found['id']}_…  made {found['created_at']} by {found['created_by'] or '?'},"
        f" last used {found['last_used_at'] or 'never'}{end}"
    )


def _limit(key: ApiKey) -> str:
    if key.rate == 0:
        return "no rate limit"
    rate = "default rate" if key.rate is None else f"{key.rate:g} requests/s"
    return rate if key.burst is None else f"{rate}, {key.burst} at once"


def _run(work: Callable[[AnyConnection], Awaitable[T]], changes: str | None = None) -> T:
    """Do the work; where it changes the keys of a name, that is put on record before."""
    settings = _settings()

    async def run() -> T:
        with translate_all("connect"):
            connection = await connect(settings, "redrive-api-keys")
        try:
            with translate_all("use the database"):
                await require_level(connection)
                return await (work(connection) if changes is None else _on_record(connection, work, changes))
        finally:
            await connection.close()

    try:
        return asyncio.run(run())
    except (KeyExistsError, KeyEndedError) as error:
        _fail(str(error), exits.CONFLICT)
    except UnknownKeyError as error:
        _fail(str(error), exits.FAILED)
    except StorageError as error:
        _fail(f"{where(settings)}: {error}", exits.FAILED)


async def _on_record(db: AnyConnection, work: Callable[[AnyConnection], Awaitable[T]], name: str) -> T:
    context = click.get_current_context()
    asked = {
        option: str(value)
        for option, value in context.params.items()
        if option not in ("name", "as_json") and value not in (None, ())
    }
    async with recorded(db, f"api-keys {context.info_name}", [name], asked) as outcome:
        try:
            done = await work(db)
        except (KeyExistsError, KeyEndedError):
            outcome.status = exits.CONFLICT
            raise
        outcome.status = exits.DONE
    return done


def _settings() -> StorageSettings:
    try:
        return read_settings(StorageSettings)
    except WrongSettingsError as error:
        click.echo(str(error), err=True)
        sys.exit(exits.USAGE)


def _fail(text: str, code: int) -> NoReturn:
    click.echo(f"api-keys: {text}", err=True)
    sys.exit(code)
