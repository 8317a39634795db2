"""Commands that change something are on record before they begin: who runs them, where, what came of it."""

from __future__ import annotations

import logging
import os
import pwd
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from storage import audit
from storage.audit import Actor
from storage.errors import DRIVER_ERRORS, StorageError
from storage.pool import AnyConnection, Pool

log = logging.getLogger("redrive.storage")
FAILED = 1


@dataclass
class Outcome:
    """An exit code; failed unless it is said otherwise."""

    status: int = FAILED


def actor() -> str:
    """Such as `ada@build-7`: of the process's user id, not of the environment, which says what one likes."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:  # in a container a user need not have a name
        name = f"uid-{number}"
    return f"{name}@{socket.gethostname()}"


@asynccontextmanager
async def recorded(
    db: Pool | AnyConnection, operation: str, targets: Sequence[str], details: Mapping[str, Any]
) -> AsyncIterator[Outcome]:
    """Around the work of a command. Its row is committed before, and gets the outcome that is set inside.

    Raises:
        DatabaseAwayError: it is not on record, and must not begin.
    """
    row = await audit.begin(db, Actor(actor(), socket.gethostname()), operation, targets, details)
    outcome = Outcome()
    try:
        yield outcome
    finally:
        if row is not None:
            try:
                await audit.end(db, row, outcome.status)
            except (StorageError, *DRIVER_ERRORS) as error:
                log.warning("what came of %r is not on record: %s", operation, error)
