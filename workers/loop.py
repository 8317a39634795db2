"""One event loop and one small pool per pool process, made at first use, that is after the fork."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from celery import current_app

from storage.sync import Database, LoopThread

T = TypeVar("T")
POOL_MAX = 2


@functools.cache
def _thread(pid: int) -> LoopThread:
    return LoopThread("redrive-tasks")


@functools.cache
def _database(pid: int, app: Any) -> Database:
    settings = app.environment.storage
    small = settings.model_copy(update={"database_pool_min": 0, "database_pool_max": POOL_MAX})
    return Database(small, _thread(pid), f"redrive-task {pid}")


def database(app: Any = None) -> Database:
    """This process's pool for `app`, or for the current one."""
    return _database(os.getpid(), app or current_app._get_current_object())


def ask(app: Any, statement: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """What `statement` answers, given a connection of the pool.

    Raises:
        storage.errors.DatabaseAwayError
    """
    pool = database(app)

    async def asked() -> T:
        connection = await pool.acquire()
        try:
            return await statement(connection)
        finally:
            await pool.release(connection)

    return pool.run(asked())


@functools.cache  # Celery registers one function several times
def on_loop(function: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """A plain function that runs the coroutine function on this process's loop, and waits for it."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> T:
        return _thread(os.getpid()).run(function(*args, **kwargs))

    run.__wrapped_async__ = function  # type: ignore[attr-defined]
    return run


def is_async(function: Any) -> bool:
    return asyncio.iscoroutinefunction(function)
