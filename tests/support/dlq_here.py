"""The `dlq` command without a process of its own, where a test is about what it prints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from dlq_consumer.cli import main


def dlq_here(
    settings: Mapping[str, str], directory: Path, *arguments: str, typed: str | None = None
) -> Result:
    """No setting of this environment, and no `.env` of the checkout, is read."""
    strangers = dict.fromkeys(name for name in os.environ if name.startswith("REDRIVE_"))
    with contextlib.chdir(directory):
        return CliRunner(env=strangers | dict(settings)).invoke(main, arguments, typed)
