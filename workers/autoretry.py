"""`autoretry_for` as Celery has it, but for its jitter: a part of the delay is kept.

Celery's `retry_jitter` draws from 0 to the whole delay, so that many a first retry does not wait at all.
Here the queue's `ladder.jitter` says which part is drawn (half, by default): jobs that failed together come
back spread, and none comes at once.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Mapping
from typing import Any

from celery.exceptions import Ignore, Retry

from workers import coroutines
from workers.home_queue import ladder_of


def delay_s(retries: int, *, factor: float, most_s: float, jitter: float) -> float:
    """Seconds before retry number `retries` (from 0): `factor` doubled each time, at most `most_s`.

    Args:
        jitter: the share of it that is drawn instead of fixed: 0.5 draws evenly from the upper half.
    """
    # The exponent is bounded: a message says how many retries it had, and may say anything.
    whole_s = max(min(most_s, factor * 2 ** min(retries, 64)), 0)
    # Spreads retries, keeps no secret.
    return random.uniform(whole_s * (1 - jitter), whole_s) if jitter else whole_s  # noqa: S311


def replace_autoretry(task: Any, options: Mapping[str, Any]) -> None:
    """Put our wrapper of `task.run` in the place of Celery's, where it made one.

    Args:
        options: the task's, as Celery got them; the task's attributes stand behind them.
    """
    if not hasattr(task, "_orig_run") or hasattr(task.run, "redrive_autoretry"):
        return

    def option(name: str, default: Any) -> Any:
        return options.get(name, getattr(task, name, default))

    autoretry_for, never = tuple(option("autoretry_for", ())), tuple(option("dont_autoretry_for", ()))
    backoff, most_s = float(option("retry_backoff", False)), int(option("retry_backoff_max", 600))
    retry_kwargs, jitter = dict(option("retry_kwargs", {})), bool(option("retry_jitter", True))

    @functools.wraps(task._orig_run)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return coroutines.settled(task._orig_run(*args, **kwargs))
        except (Ignore, Retry, *never):
            raise
        except autoretry_for as error:
            how = dict(retry_kwargs)
            if backoff:
                # A backoff of True is 1 s; smaller ones count as 1 s, as Celery has it.
                factor = int(max(1.0, backoff))
                share = ladder_of(task).jitter if jitter else 0.0
                how["countdown"] = delay_s(task.request.retries, factor=factor, most_s=most_s, jitter=share)
            # What the other side asked for: `Retry-After`, kept by the exception as seconds.
            asked_s = getattr(error, "retry_after_s", None)
            if isinstance(asked_s, int | float) and math.isfinite(asked_s):
                how["countdown"] = max(how.get("countdown") or 0, asked_s)
            # Set by Celery's own `Task.retry(max_retries=…)`.
            if hasattr(task, "override_max_retries"):
                how["max_retries"] = task.override_max_retries
            planned = task.retry(exc=error, **how)
            if hasattr(task, "override_max_retries"):
                del task.override_max_retries
            raise planned from error

    run.redrive_autoretry = True  # type: ignore[attr-defined]
    task.run = run
