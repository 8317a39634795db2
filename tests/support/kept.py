"""A connection that lasts as long as a wait: a condition that is looked at twenty times a second needs one.

Outside of a wait each question has a connection of its own, which knows nothing of the last one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, TypeVar

C = TypeVar("C")
T = TypeVar("T")


class _Waits(threading.local):
    """Of each thread: what the outermost wait keeps, by what it leads to."""

    kept: dict[str, tuple[ExitStack, Any]] | None = None


_WAITS = _Waits()


@contextmanager
def kept_connections() -> Iterator[None]:
    """While it lasts, `ask` uses a connection again. Within another one it does nothing."""
    if _WAITS.kept is not None:
        yield
        return
    kept = _WAITS.kept = {}
    try:
        yield
    finally:
        _WAITS.kept = None
        for opened, _ in kept.values():
            _close(opened)


def ask(
    to: str,
    opened: Callable[[], AbstractContextManager[C]],
    question: Callable[[C], T],
    is_lost: Callable[[C, Exception], bool],
) -> T:
    """The answer to a `question` that changes nothing.

    Args:
        to: what the connection leads to.
        is_lost: tells of a kept connection, and of what a question over it raised, whether another connection
            might answer. Then it is asked over a new one.
    """
    kept = _WAITS.kept
    if kept is None:
        with opened() as connection:
            return question(connection)
    if to in kept:
        try:
            return question(kept[to][1])
        except Exception as error:
            if not is_lost(kept[to][1], error):
                raise
            _close(kept.pop(to)[0])
    with ExitStack() as stack:
        connection = stack.enter_context(opened())
        answer = question(connection)
        kept[to] = stack.pop_all(), connection
    return answer


def _close(opened: ExitStack) -> None:
    with suppress(Exception):  # it has answered
        opened.close()
