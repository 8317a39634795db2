"""What is on record of a command that changes something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import click

from storage.group_list import AmbiguousGroupError, UnknownGroupError, find
from storage.pool import Pool
from storage.recording import recorded
from topology import exits

T = TypeVar("T")
# Parameters that name what is changed; how it is asked and shown says nothing, and a patch may hold secrets.
_NAMING = ("letter_ids", "letter_id", "replay_id", "fingerprint", "group", "ids")
_NOT_KEPT = (*_NAMING, "as_json", "yes", "wait", "timeout_s", "hours", "dry_run", "patch")


async def on_record(pool: Pool, work: Callable[[Pool], Awaitable[T]]) -> T:
    """Do the work of the running command, with a row before it and its exit code afterwards."""
    context = click.get_current_context()
    parameters = await _with_whole_groups(pool, context.params)
    async with recorded(pool, _name(context), _targets(parameters), _details(parameters)) as outcome:
        try:
            done = await work(pool)
        except asyncio.CancelledError:
            outcome.status = exits.INTERRUPTED
            raise
        except SystemExit as end:
            outcome.status = end.code if isinstance(end.code, int) else exits.FAILED
            raise
        outcome.status = exits.DONE
    return done


async def _with_whole_groups(pool: Pool, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A group may be named by the start of its fingerprint: what is on record is found by all of it."""
    whole = dict(parameters)
    for name in ("fingerprint", "group"):
        if whole.get(name):
            with suppress(UnknownGroupError, AmbiguousGroupError):  # the command itself says so
                whole[name] = await find(pool, whole[name])
    return whole


def _name(context: click.Context) -> str:
    """Such as `dlq alerts snooze`, however the program was called."""
    names: list[str] = []
    at: click.Context | None = context
    while at is not None and at.parent is not None:
        names.append(at.info_name or "")
        at = at.parent
    return " ".join(["dlq", *reversed(names)])


def _targets(parameters: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for name in _NAMING:
        value = parameters.get(name)
        found += map(str, value) if isinstance(value, tuple) else [] if value is None else [str(value)]
    return found


def _details(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, str | int | float) else str(value)
        for name, value in parameters.items()
        if name not in _NOT_KEPT and value not in (None, False, ())
    }
