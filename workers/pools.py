"""Which of Celery's pools run jobs, and why not the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery.concurrency.thread import TaskPool as CeleryThreads

from workers.threads.pool import TaskPool as Threads

_GREEN = (
    "its jobs would share one thread with the ledger and the broker connection: one that computes stops "
    "heartbeats and renewals, and no hard time limit ends it"
)
WHY_NOT = {
    "solo": "it runs jobs on the main thread: meanwhile no lease is renewed, nothing is settled, no "
    "heartbeat is sent, and no time limit ends a job",
    "gevent": _GREEN,
    "eventlet": _GREEN,
}


def ours(pool_class: Any) -> Any:
    """The pool to use where `pool_class` was asked for: for Celery's threads ours, which has time limits."""
    return Threads if pool_class is CeleryThreads else pool_class


def unsafe_pool(pool_class: type, controller: Any, conf: Any) -> Iterator[str]:
    """Findings about the pool and its options.

    Args:
        controller: Celery's `WorkController`, in a worker that starts; its options come from `conf`
            or the command line.
    """
    pool_class = ours(pool_class)
    if getattr(controller, "autoscale", None):
        yield "--autoscale would end processes that run jobs; use --concurrency, or more workers"
    package, _, name = pool_class.__module__.rpartition(".")
    if issubclass(pool_class, Threads):
        for option in ("max_tasks_per_child", "max_memory_per_child"):
            if getattr(controller, option) if controller is not None else conf[f"worker_{option}"]:
                yield f"{option} does nothing in a threads pool, which has no children; remove it"
    elif package != "celery.concurrency" or name != "prefork":
        known = package == "celery.concurrency"
        why = WHY_NOT.get(name) if known else None
        yield (
            f"the pool is {name if known else pool_class.__module__}; prefork and threads are supported: "
            f"{why or 'what becomes of a lost or overdue job in another pool is not known'} (change --pool)"
        )
