"""A batch in which one record is bad: the others go on without it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from storage.errors import DatabaseAwayError

T = TypeVar("T")
R = TypeVar("R")


async def in_parts(
    call: Callable[[Sequence[T]], Awaitable[list[R]]],
    batch: Sequence[T],
    alone: Callable[[T, Exception], Awaitable[list[R]]],
) -> list[R]:
    """`call` on the batch; where a record of it cannot be made or is refused, on its halves, and `alone` on
    the culprit.

    One record that cannot be stored so never blocks the others.
    """
    try:
        return await call(batch)
    except DatabaseAwayError:
        raise
    except Exception as error:  # noqa: BLE001 - records are made of what others wrote: any error may be theirs
        if len(batch) == 1:
            return await alone(batch[0], error)
        middle = len(batch) // 2
        first = await in_parts(call, batch[:middle], alone)
        return first + await in_parts(call, batch[middle:], alone)
