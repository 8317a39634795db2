"""`make up`: the whole system in the foreground until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
from dotenv import dotenv_values
from pydantic import SecretStr

from dev.errors import DevError
from dev.interrupts import uninterrupted
from dev.runs import ROOT, Run
from dev.servers import Kind, ServerUrls, acquire
from dev.stack import Stack
from dev.waiting import Say
from topology.catalogue import TOPOLOGY
from topology.errors import TopologyError
from topology.settings import TopologySettings, load_topology
from topology.spec import Topology

_WATCH_S = 0.5


def main() -> int:
    """Returns the exit code: 1 when a process ended by itself, 130 after Ctrl-C."""

    def say(line: str) -> None:
        click.echo(f"  {line}")

    try:
        with acquire("up", say) as servers:
            keep_up(servers.run, servers.urls, servers.kind, say)
    except KeyboardInterrupt:
        click.echo("stopped")
        return 130
    except DevError as error:
        click.echo(f"{error}", err=True)
        return 1
    return 0


def keep_up(run: Run, urls: ServerUrls, kind: Kind, say: Say) -> None:
    """Starts everything and watches over it until interrupted; then, or at a failure, stops it.

    Raises DevError: something did not start, or a process ended by itself.
    """
    given = _given()
    stack = Stack.over(run, urls, ROOT, say, given, _topology(urls, given))
    key = f"up-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    env = run.directory / "env"
    try:
        stack.set_up(key)
        stack.start()
        _write_env(env, stack)
        click.echo(summary(stack, env, kind))
        while True:
            stack.check_alive()
            time.sleep(_WATCH_S)
    finally:
        with uninterrupted():
            say("stopping")
            stack.stop()
            env.unlink(missing_ok=True)
            with contextlib.suppress(DevError, OSError):
                stack.command("api-keys", "revoke", key)


def _given() -> dict[str, str]:
    """The REDRIVE_ settings of `.env` and of the environment, which goes first."""
    both = {**dotenv_values(ROOT / ".env"), **os.environ}
    return {name: value for name, value in both.items() if name.startswith("REDRIVE_") and value is not None}


def _topology(urls: ServerUrls, given: Mapping[str, str]) -> Topology:
    name = given.get("REDRIVE_TOPOLOGY")
    if not name:
        return TOPOLOGY
    try:
        return load_topology(TopologySettings(amqp_url=SecretStr(urls.amqp), topology=name))
    except TopologyError as error:
        raise DevError(str(error)) from error


def _write_env(path: Path, stack: Stack) -> None:
    """A file to be sourced by a shell; readable by its owner alone, since it holds passwords."""
    values = {**stack.settings, "REDRIVE_URL": stack.api_url, "REDRIVE_KEY": stack.api_key}
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items()))


def summary(stack: Stack, env: Path, kind: Kind) -> str:
    """What a newcomer wants to open or type next."""
    url = urlsplit(stack.urls.management)
    port = f":{url.port}" if url.port else ""
    login = f"user {unquote(url.username or 'guest')}  password {unquote(url.password or 'guest')}"
    if kind == "environment":  # not ours to show
        login = "log-in as in REDRIVE_MANAGEMENT_URL"
    # Somebody else's webhook address may hold a token.
    alerts = f"{stack.sink_url}/_received" if stack.sink_url else "go to REDRIVE_ALERT_WEBHOOK_URL"
    payload = '{"payment_id":"p-1","amount_cents":1999,"currency":"EUR"}'
    return f"""
Redrive is up. Ctrl-C stops everything.

  API docs       {stack.api_url}/docs
  API key        {stack.api_key}
  Management UI  {url.scheme}://{url.hostname}{port}  {login}
  Third party    {stack.settings["REDRIVE_THIRD_PARTY_URL"]}
  Alerts         {alerts}
  Logs           {stack.run.logs.relative_to(ROOT)}

In another terminal:

  source {env.relative_to(ROOT)}
  curl -i "$REDRIVE_URL/jobs" -H "Authorization: Bearer $REDRIVE_KEY" -H 'Idempotency-Key: p-1' \\
    -H 'Content-Type: application/json' \\
    -d '{{"type":"payments.call_payment_api","payload":{payload}}}'
  .venv/bin/dlq list
"""
