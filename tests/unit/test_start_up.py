"""A command imports what it needs itself, and not what another one does."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import dlq_consumer.cli
import topology.cli
from tests.support.command_tree import commands_of
from tests.support.processes import clean_environment
from topology.on_demand import OnDemand

CHANNELS = {"apprise", "dlq_consumer.channels.apprise_url", "dlq_consumer.channels.sentry"}
# What `dlq consume` and `dlq check` need, and what only reads a table does not.
BROKER = {"pika", "kombu", "amqp", "httpx", "topology.entities", "topology.lint", "dlq_consumer.service"}
OTHERS = {"api", "workers", "celery", "fastapi", "uvicorn"}


def imported(module: str, *arguments: str) -> set[str]:
    """What a process has imported that shows a command's help."""
    code = (
        f"import sys, {module} as cli\n"
        "try: cli.main(sys.argv[1:], 'a-command')\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--help"],
        env=clean_environment({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: a-command"), done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize(
    ("command", "spared"),
    [
        ("list", CHANNELS | OTHERS | BROKER - {"pika"}),
        ("stats", CHANNELS | OTHERS | BROKER),
        ("alerts", CHANNELS | OTHERS | {"httpx", "dlq_consumer.service"}),
        ("consume", CHANNELS | OTHERS),
    ],
    ids=["list", "stats", "alerts", "consume"],
)
def test_a_dlq_command_imports_only_what_it_needs(command: str, spared: set[str]) -> None:
    found = imported("dlq_consumer.cli", command)
    assert {"click", "asyncpg", "storage.pool"} <= found
    assert spared & found == set()


def test_the_linter_needs_neither_broker_nor_settings() -> None:
    assert {"pika", "httpx", "pydantic", "topology.settings"} & imported("topology.cli", "lint") == set()


@pytest.mark.parametrize("program", [dlq_consumer.cli, topology.cli], ids=lambda program: program.__name__)
def test_each_command_has_the_name_that_it_is_called_by(program: Any) -> None:
    main = program.main
    assert isinstance(main, OnDemand)
    found = dict(commands_of(main))
    assert list(found) == sorted(program.SUBCOMMANDS)
    assert [name for name, command in found.items() if command.name != name] == []
