"""One event loop and one small pool per process, made at first use, that is after the fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from celery import current_app

from storage.sync import Database, LoopThread, borrower, pausing

T = TypeVar("T")
# How the loop makes its tasks: set by workers/coroutines.py, which knows whose they are.
task_factory: Callable[..., Any] | None = None
# A job holds one connection in `once`, and may write its progress beside it.
POOL_MAX = 2
# More than a process whose job has met its hard limit goes on (`GRACE_S` of the guard).
KILLING_S = 60.0


@dataclass
class _Process:
    """What this process has. Nothing of it survives a fork: neither threads nor sockets do."""

    lock: threading.Lock
    pool_max: int = POOL_MAX
    thread: LoopThread | None = None
    databases: dict[Any, Database] = field(default_factory=dict)  # one for each app
    # Kept: what collecting it closes, the parent still uses.
    parents: _Process | None = None


_process = _Process(threading.Lock())


def _forget() -> None:
    global _process
    _process = _Process(threading.Lock(), parents=_process)


os.register_at_fork(after_in_child=_forget)


def serve(connections: int) -> None:
    """For a process that runs several jobs at once, before the first of them.

    Args:
        connections: to Postgres, at most.
    """
    _process.pool_max = connections


class _Last(threading.local):
    """Who borrowed connections in this thread."""

    borrower: object | None = None


_last = _Last()


@contextmanager
def lending_to(who: object, for_s: float) -> Iterator[None]:
    """What `who` borrows in the block and leaves behind is taken back: at its end, or before the next one.

    Args:
        for_s: so long the block takes at most, and a transaction in it may pause.
    """
    _reclaim()
    _last.borrower = who
    token, paused = borrower.set(who), pausing.set(for_s)
    try:
        yield
    finally:
        pausing.reset(paused)
        borrower.reset(token)
        _reclaim()


def _reclaim() -> None:
    if (who := _last.borrower) is not None:
        for made in tuple(_process.databases.values()):
            made.reclaim(who)
    _last.borrower = None


def _thread_of(process: _Process) -> LoopThread:
    if process.thread is None:
        process.thread = LoopThread("redrive-tasks", task_factory)
    return process.thread


def thread() -> LoopThread:
    """This process's loop."""
    process = _process
    if process.thread is None:
        with process.lock:
            return _thread_of(process)
    return process.thread


def database(app: Any = None) -> Database:
    """This process's pool for `app`, or for the current one."""
    process, app = _process, app or current_app._get_current_object()
    made = process.databases.get(app)
    if made is None:
        with process.lock:
            made = process.databases.get(app) or _new_database(process, app)
    return made


def _new_database(process: _Process, app: Any) -> Database:
    small = app.environment.storage.model_copy(
        update={"database_pool_min": 0, "database_pool_max": process.pool_max}
    )
    name = f"redrive-task {os.getpid()}"
    made = process.databases[app] = Database(small, _thread_of(process), name, idle_s=_longest_s(app))
    return made


def _longest_s(app: Any) -> float:
    """No job takes longer, its killing included, but for one that was sent with a limit of its own."""
    limits = [task.time_limit for task in app.tasks.values()]
    return float(max(limit or app.conf.task_time_limit or 0 for limit in limits)) + KILLING_S


def ask(app: Any, statement: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """What `statement` answers, given a connection of the pool.

    Raises:
        storage.errors.DatabaseAwayError
    """
    pool = database(app)

    async def asked() -> T:
        async with pool.lend() as connection:
            return await statement(connection)

    return pool.run(asked())
