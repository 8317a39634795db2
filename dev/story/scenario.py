"""`make demo`: everything is started, the story is told, everything is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

import click
import httpx

from dev.borrowed import borrowed
from dev.errors import DevError
from dev.interrupts import uninterrupted
from dev.management import management_client, without_login
from dev.runs import Run
from dev.servers import Servers, ServerUrls, acquire
from dev.sink.client import SinkClient
from dev.stack import Stack
from dev.story import conservation, crash, dead_letters, retries
from dev.story.client import RedriveApi
from dev.story.stage import Stage
from dev.story.telling import Teller
from dev.thirdparty.client import ThirdPartyClient
from dev.waiting import Say
from storage.databases import server_version

# A dead worker's job is taken over when its lease has run out: 30 s by default, which is long to watch.
LEASE_S = 8.0
SETTINGS = {"REDRIVE_WORKER_LEASE_S": f"{LEASE_S:g}", "REDRIVE_WORKER_RENEW_S": "2"}


def main() -> int:
    """Returns the exit code: 0 only if every sentence of the story was seen, 130 after Ctrl-C."""

    def say(line: str) -> None:
        click.echo(f"  {line}")

    began = time.monotonic()
    run: Run | None = None
    try:
        with acquire("demo", say) as servers, _place(servers, say) as urls:
            run = servers.run
            steps = tell_story(servers.run, urls, say)
    except KeyboardInterrupt:
        click.echo("interrupted; everything is stopped")
        return 130
    except (DevError, httpx.HTTPError) as error:
        click.echo(f"\nThe demo failed: {error or type(error).__name__}", err=True)
        if run and run.logs.exists():  # before that nothing of this run wrote any
            click.echo(f"The logs of its processes: {run.logs}", err=True)
        return 1
    click.echo(f"\nAll {steps} steps seen in {time.monotonic() - began:.0f} s; everything is stopped again.")
    return 0


def _place(servers: Servers, say: Say) -> contextlib.AbstractContextManager[ServerUrls]:
    """Servers of our own are fresh; in others' a vhost and a database of our own are."""
    if servers.kind == "environment":
        return borrowed(servers.urls, "demo", say)
    return contextlib.nullcontext(servers.urls)


def tell_story(run: Run, urls: ServerUrls, say: Say) -> int:
    """Starts everything over an empty vhost and an empty database, tells the story, stops everything.

    Returns the number of steps, all of them seen. Raises DevError at the first thing that was not.
    """
    # The run's own directory as working directory: no `.env` changes the story.
    stack = Stack.over(run, urls, run.directory, say, SETTINGS)
    try:
        stack.set_up("demo")
        stack.start()
        with _stage(stack) as stage:
            click.echo(_introduction(stack))
            _tell(stage)
            return stage.tell.steps
    finally:
        with uninterrupted():
            stack.stop()


def _tell(stage: Stage) -> None:
    retries.good_job(stage)
    retries.transient_failure(stage)
    retries.rate_limited(stage)
    retries.same_key(stage)
    dead_letters.poisoned_job(stage)
    dead_letters.garbage(stage)
    dead_letters.fixed_and_replayed(stage)
    crash.killed_worker(stage, LEASE_S)
    conservation.nothing_lost(stage)


@contextlib.contextmanager
def _stage(stack: Stack) -> Iterator[Stage]:
    api, third_party = RedriveApi(stack.api_url, stack.api_key), ThirdPartyClient(stack.third_party_url)
    sink = SinkClient(stack.sink_url)
    try:
        yield Stage(stack, api, third_party, sink, Teller())
    finally:
        for client in (api, third_party, sink):
            client.close()


def _introduction(stack: Stack) -> str:
    with management_client(stack.urls.management, timeout_s=10) as management:
        overview = management.get("/api/overview").raise_for_status().json()
    address = without_login(stack.urls.management)
    postgres = asyncio.run(server_version(stack.urls.database))
    return (
        f"\nRabbitMQ {overview['rabbitmq_version']} and PostgreSQL {postgres}. While this runs:\n"
        f"API docs {stack.api_url}/docs, management UI {address}\n"
        f"A job's lease is {LEASE_S:g} s here instead of 30 s; everything else is as by default."
    )
