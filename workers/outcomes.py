"""How an attempt ended. Plain values: they go from the pool process to the main process and to Postgres."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from billiard.common import terminate_handler_fired

from storage.text import safe_text
from topology.delivery_fields import LONGEST_DELAY_S

MESSAGE_CHARACTERS = 2_000
TRACEBACK_CHARACTERS = 20_000

DeadReason = Literal["exception", "exhausted", "rejected", "soft_timeout", "malformed", "revoked", "expired"]
CrashReason = Literal["hard_timeout", "worker_lost", "memory"]


@dataclass(frozen=True)
class Failure:
    """An exception as text, safe for Postgres and capped."""

    type: str
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class Succeeded:
    """`result` is JSON."""

    result: bytes | None = None


@dataclass(frozen=True)
class Retry:
    """The task asks for another attempt.

    Args:
        arguments: JSON `[args, kwargs]` where the next attempt gets others, else None.
        options: changed message options: `time_limit`, `soft_time_limit`, `expires`, `priority`, `queue`.
        counted: whether Celery's `retries` goes up.
    """

    delay_s: float
    arguments: bytes | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    counted: bool = True


@dataclass(frozen=True)
class Dead:
    """No further attempt: recorded, then dead-lettered."""

    reason: DeadReason
    failure: Failure | None = None


@dataclass(frozen=True)
class Crashed:
    """The attempt ended without the task's own word; the job row's bound decides about another."""

    reason: CrashReason
    failure: Failure | None = None


@dataclass(frozen=True)
class Returned:
    """Given back, uncounted: the same attempt waits again. Not begun, or this worker stops, or an outage."""

    delay_s: float = 0.0


Outcome = Succeeded | Retry | Dead | Crashed | Returned


def checked_delay_s(value: float) -> float:
    """Seconds until an attempt; a negative delay means at once, as in Celery.

    Raises:
        ValueError: not finite, or longer than `LONGEST_DELAY_S`.
        TypeError: not a number.
    """
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not seconds <= LONGEST_DELAY_S or seconds == -math.inf:
        raise ValueError(f"a delay of {seconds:g} s; the longest is 366 days ({LONGEST_DELAY_S:g} s)")
    return max(seconds, 0.0)


def qualified_name(kind: type[BaseException]) -> str:
    """`module.Class`, without the module for built-in exceptions."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def describe(error: BaseException, text: str | None = None) -> Failure:
    """An exception as a `Failure`. Raises nothing of it, whatever its `__str__` does.

    Args:
        text: the traceback, when it was formatted elsewhere.
    """
    try:
        message = str(error)
    except BaseException as second:  # a broken __str__ must not lose the failure itself
        if terminate_handler_fired():
            raise
        message = f"<its text cannot be had: {type(second).__name__}>"
    if text is None:
        try:
            text = "".join(traceback.format_exception(error))
        except BaseException:
            if terminate_handler_fired():
                raise
            text = ""
    return Failure(
        safe_text(qualified_name(type(error)), 200),
        safe_text(message, MESSAGE_CHARACTERS),
        safe_text(text, TRACEBACK_CHARACTERS),
    )
