"""`workers check`: what a worker looks at when it starts, without starting one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import click
from celery import concurrency
from celery.app.utils import find_app

from storage.errors import StorageError
from storage.pool import ready, where
from storage.settings import StorageSettings
from topology import exits
from topology.declare import connection
from topology.errors import InvalidTopologyError, TopologyError, WrongSettingsError
from topology.plan.fitness import Fitness, fitness_of
from workers.celery_app import Redrive
from workers.checks import settings_found, tasks_found
from workers.setting_checks import unused_settings
from workers.task_checks import BUILT_IN


@click.command("check")
@click.option("-A", "--app", "name", required=True, help="Your app, as celery takes it: module:app.")
@click.option("-Q", "--queues", default="", help="Queues that the worker would consume, by commas.")
@click.option("-P", "--pool", default="", help="The worker's pool, if it is given one.")
def check_command(name: str, queues: str, pool: str) -> None:
    """Whether a worker would start: settings, tasks, queues on the broker, the database's schema.

    One `thing: OK` a line. Changes nothing, runs no job. Exit 1: a finding a line, each with what to do.
    """
    app = _app(name)
    try:
        found = [
            *_settings(app, queues, pool),
            *_tasks(app),
            *_queues(app),
            *_database(app.environment.storage),
        ]
    except (WrongSettingsError, InvalidTopologyError) as error:
        _usage(str(error))
    if found:
        for finding in found:
            click.echo(finding, err=True)
        sys.exit(exits.FAILED)


def _app(name: str) -> Redrive:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        app = find_app(name)
        if not isinstance(app, Redrive):
            _usage(f"{name} is a {type(app).__module__}.{type(app).__name__}; it must be made by Redrive")
        app.loader.import_default_modules()
        app.finalize()
    except Exception as error:  # noqa: BLE001 - the user's modules: whatever they raise is told, not traced
        kind = "" if isinstance(error, TopologyError) else f"{type(error).__name__}: "
        _usage(f"{name} cannot be loaded: {kind}{error}")
    return app


def _settings(app: Redrive, queues: str, pool: str) -> Iterator[str]:
    try:
        app.amqp.queues.select([queue for queue in queues.split(",") if queue])
    except KeyError as error:
        yield f"queue {error} is not in the topology"
    found = list(settings_found(app, concurrency.get_implementation(pool or app.conf.worker_pool)))
    for words in unused_settings(app):
        click.echo(words)
    yield from found or _fine("settings: OK")


def _tasks(app: Redrive) -> Iterator[str]:
    names = [name for name in app.tasks if not name.startswith(BUILT_IN)]
    yield from list(tasks_found(app.tasks, app.conf.task_time_limit)) or _fine(f"tasks: OK ({len(names)})")


def _queues(app: Redrive) -> Iterator[str]:
    environment, names = app.environment, app.amqp.queues.consume_from
    try:
        # Workers speak AMQP, whatever the management API tells.
        with connection(environment.broker.address, "workers check"):
            fit: Fitness = fitness_of(environment.broker, environment.topology, names)
    except TopologyError as error:
        yield str(error)
        return
    for words in fit.noted:
        click.echo(words)
    yield from fit.wrong or _fine(f"queues {', '.join(names)} at {environment.broker.address}: OK")


def _database(settings: StorageSettings) -> Iterator[str]:
    try:
        level = asyncio.run(ready(settings))
    except StorageError as error:
        yield f"database {where(settings)}: {error}"
    else:
        yield from _fine(f"database {where(settings)}: OK (schema level {level})")


def _fine(words: str) -> tuple[str, ...]:
    """Say it; there is no finding."""
    click.echo(words)
    return ()


def _usage(words: str) -> NoReturn:
    click.echo(f"workers check: {words}", err=True)
    sys.exit(exits.USAGE)
