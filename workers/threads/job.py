"""A job that waits for a thread or runs in one: what billiard's `ApplyResult` is to prefork."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workers.threads.slot import Slot


@dataclass(eq=False, kw_only=True)
class Job:
    """Touched on the main thread, but for `value` and `failure`, which its thread sets before it is done."""

    target: Callable[..., Any]
    arguments: Sequence[Any]
    on_value: Callable[[Any], None]
    on_failure: Callable[[Any], None]
    on_accepted: Callable[[int, float], None]
    on_timeout: Callable[[bool, float], None]
    soft_s: float = math.inf
    hard_s: float = math.inf
    value: Any = None
    failure: Any = None  # billiard's ExceptionInfo
    slot: Slot | None = None
    # Has ended for everyone but its thread.
    over: bool = False
    # Called off: what its end is then, told once the thread has come back or been given up.
    called_off: Any = None
    # Celery's request asks for these two.
    _accepted: bool = False
    _write_to: None = field(default=None, repr=False)

    def terminate(self, signal: int) -> None:
        """Celery calls this besides the pool's `terminate_job`, which does it."""
