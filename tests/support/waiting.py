"""Waiting for a condition with a deadline: the only place in the tests that sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

from tests.support.kept import kept_connections

T = TypeVar("T")
POLL_S = 0.05
# No wait gives up before: what takes a moment takes long on a busy machine, and patience costs nothing where
# all is well. Below the 60 s of what some tests must not wait for.
LEAST_S = 30.0


def patient(deadline_s: float) -> float:
    return max(deadline_s, LEAST_S)


def eventually(
    fn: Callable[[], T],
    deadline_s: float = 10.0,
    what: str = "",
    *,
    ignoring: tuple[type[Exception], ...] = (AssertionError,),
    every_s: float = POLL_S,
) -> T:
    """Call `fn` until it returns something true, and return that.

    Exceptions in `ignoring` count as "not yet" (so `fn` may assert); others pass through. After
    `deadline_s` seconds, or `LEAST_S` if that is more, raises AssertionError telling what was waited for, and
    the last value or exception.
    """
    with kept_connections():
        return _eventually(fn, patient(deadline_s), what, ignoring, every_s)


def _eventually(
    fn: Callable[[], T], deadline_s: float, what: str, ignoring: tuple[type[Exception], ...], every_s: float
) -> T:
    end = time.monotonic() + deadline_s
    while True:
        last: object
        try:
            value = fn()
            if value:
                return value
            last = value
        except ignoring as error:
            last = error
        if time.monotonic() >= end:
            _give_up(fn, deadline_s, what, last)
        time.sleep(every_s)


def let_pass(seconds: float) -> None:
    """Where nothing tells that it is over, such as a delay while the broker is down."""
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= until, seconds + LEAST_S, f"{seconds:g} s have passed")


async def eventually_async(
    fn: Callable[[], Awaitable[T]],
    deadline_s: float = 10.0,
    what: str = "",
    *,
    ignoring: tuple[type[Exception], ...] = (AssertionError,),
    every_s: float = POLL_S,
) -> T:
    """`eventually` for a coroutine function. One call of `fn` that hangs is cut off at the deadline too."""
    loop = asyncio.get_running_loop()
    deadline_s = patient(deadline_s)
    end = loop.time() + deadline_s
    last: object = "nothing yet"
    while True:
        try:
            async with asyncio.timeout_at(end):
                value = await fn()
            if value:
                return value
            last = value
        except ignoring as error:
            last = error
        except TimeoutError:
            _give_up(fn, deadline_s, what, last)
        if loop.time() >= end:
            _give_up(fn, deadline_s, what, last)
        await asyncio.sleep(every_s)


def _give_up(fn: Callable[..., object], deadline_s: float, what: str, last: object) -> NoReturn:
    name = what or getattr(fn, "__qualname__", repr(fn))
    cause = last if isinstance(last, Exception) else None
    raise AssertionError(f"not within {deadline_s:g} s: {name}; last: {last!r}") from cause
