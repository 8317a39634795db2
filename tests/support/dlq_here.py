"""Commands without a process of their own, where a test is about what they print."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import click
from click.testing import CliRunner, Result

from dlq_consumer.cli import main


def dlq_here(
    settings: Mapping[str, str], directory: Path, *arguments: str, typed: str | None = None
) -> Result:
    """`dlq …`; see `command_here`."""
    return command_here(main, settings, directory, *arguments, typed=typed)


def command_here(
    command: click.Command,
    settings: Mapping[str, str],
    directory: Path,
    *arguments: str,
    typed: str | None = None,
) -> Result:
    """No setting of this environment, and no `.env` of the checkout, is read."""
    strangers = dict.fromkeys(name for name in os.environ if name.startswith("REDRIVE_"))
    with contextlib.chdir(directory):
        return CliRunner(env=strangers | dict(settings)).invoke(command, arguments, typed)
