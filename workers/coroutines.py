"""`async def` tasks: each runs on the process's loop, and all that it started there ends with it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from celery.exceptions import SoftTimeLimitExceeded

from storage.sync import Running
from workers import child, loop
from workers.errors import UnsafeTaskError, WorkerError

logger = logging.getLogger(__name__)
T = TypeVar("T")
GENERATOR = "task {name}: it is an asynchronous generator, which has no result; return a list instead"
# Celery calls these without awaiting what they return.
HOOKS = ("__call__", "before_start", "after_return", "on_success", "on_failure", "on_retry")

# The asyncio tasks that the running attempt has started, directly or not.
_started: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("redrive_started", default=None)


def task_factory(event_loop: asyncio.AbstractEventLoop, coroutine: Any, **how: Any) -> asyncio.Task[Any]:
    """asyncio's, with a record of who started what."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=event_loop, **how)
    context = how.get("context")
    started = _started.get() if context is None else context.get(_started)
    if started is not None:
        started.add(task)
        task.add_done_callback(started.discard)
    return task


loop.task_factory = task_factory


def is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function)


@functools.cache  # Celery registers one function several times
def on_loop(function: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """A plain function that runs the coroutine function on this process's loop, and waits for it."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> T:
        result: T = settled(function(*args, **kwargs))
        return result

    run.__wrapped_async__ = function  # type: ignore[attr-defined]
    return run


def settled(value: Any) -> Any:
    """What a task returned; if that has still to run (a decorator may hide a coroutine), its result.

    A soft time limit cancels it; it then ends as it likes, and what it returns or raises counts, but
    asyncio.CancelledError means SoftTimeLimitExceeded. On the loop itself, where nothing can be waited for,
    the coroutine is returned for `await`.

    Raises:
        WorkerError: it is an asynchronous generator, or it was cancelled by itself.
    """
    if inspect.isasyncgen(value):
        raise WorkerError("the task is an asynchronous generator, which has no result")
    if not inspect.isawaitable(value):
        return value
    here = loop.thread()
    if here.here:
        return value
    running, hit = Running(here.loop, _whole(value)), None
    while True:
        try:
            running.start()
            running.wait()
            break
        except BaseException as error:  # noqa: BLE001 - raised below, once the coroutine has ended
            hit = hit or error
            running.cancel()
    try:
        result = running.result()
    except asyncio.CancelledError as cancelled:
        raise (hit or WorkerError("the coroutine was cancelled, and not by a time limit")) from cancelled
    if hit is not None and not isinstance(hit, SoftTimeLimitExceeded):
        raise hit
    return result


async def _whole(awaitable: Awaitable[T]) -> T:
    """The coroutine, then the end of what it left behind: the next job meets a clean loop."""
    started: set[asyncio.Task[Any]] = set()
    _started.set(started)
    attempt = child.current()
    try:
        return await awaitable
    finally:
        if attempt is not None and attempt.progress is not None:
            await attempt.progress.written()
        await _end(started)


async def _end(started: set[asyncio.Task[Any]]) -> None:
    if started:
        names = ", ".join(sorted(str(task.get_coro()) for task in started))
        fields = {"action": "tasks_left_behind", "tasks": len(started)}
        logger.warning("the task left these running, they are cancelled: %s", names[:500], extra=fields)
    interrupted = False
    while started:
        for task in tuple(started):
            task.cancel()
        try:
            await asyncio.wait(tuple(started))
        except asyncio.CancelledError:
            interrupted = True
    if interrupted:
        raise asyncio.CancelledError


def adapt(kind: type, name: str) -> None:
    """Make a task class run its `async def run` on the loop.

    Raises:
        UnsafeTaskError: a task of this class would report success without having run.
    """
    run = inspect.getattr_static(kind, "run")
    function = run.__func__ if isinstance(run, staticmethod) else run
    if inspect.isasyncgenfunction(function):
        raise UnsafeTaskError(GENERATOR.format(name=name))
    for hook in HOOKS:
        method = getattr(kind, hook, None)
        if is_async(method) or inspect.isasyncgenfunction(method):
            instead = "; define an async run()" if hook == "__call__" else "; make it a plain method"
            raise UnsafeTaskError(f"task {name}: {hook} is async, and Celery does not await it{instead}")
    if is_async(function):
        kept = staticmethod(on_loop(function)) if isinstance(run, staticmethod) else on_loop(function)
        kind.run = kept  # type: ignore[attr-defined]
