"""What a task may not say of itself, because a message of it could be lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery.exceptions import QueueNotFound

from topology.errors import UnknownQueueError
from topology.spec import WorkQueue
from workers.home_queue import routed_to
from workers.task import RedriveTask

# Celery's own tasks, and ours, which see to a canvas.
BUILT_IN = ("celery.", "redrive.")
# What the check of a delivery accepts; anything else would be dead-lettered as undecodable.
SERIALIZER = "json"
COMPRESSIONS = frozenset({"gzip", "zlib", "application/x-gzip", "bzip2", "bzip", "application/x-bz2"})
STRATEGY = "celery.worker.strategy:default"


def unsafe_task(task: Any, time_limit: float | None) -> Iterator[str]:
    """The findings about one task, each naming the setting and the way out.

    What the app's configuration gives to every task is said there, once: see `workers.setting_checks`.

    Args:
        time_limit: the worker's hard limit in seconds, which holds for tasks without one.
    """
    conf = task.app.conf
    if not isinstance(task, RedriveTask):
        yield "its base class is not RedriveTask; derive it from workers.task.RedriveTask"
    if not task.acks_late and conf.task_acks_late:
        yield "acks_late is off: acknowledged before it has run; remove the override"
    yield from _acknowledged_failures(task)
    if not task.reject_on_worker_lost and conf.task_reject_on_worker_lost:
        yield "reject_on_worker_lost is off: a lost process would lose the message; remove the override"
    if task.max_retries is None:
        yield "max_retries is None: it would be retried for ever; set a number"
    if not getattr(task, "mandatory", True):
        yield "mandatory is off: a publish that no queue takes would be confirmed and dropped; remove it"
    if task.serializer != SERIALIZER and conf.task_serializer == SERIALIZER:
        yield f"serializer is {task.serializer!r}: workers take JSON alone; remove it"
    compression = getattr(task, "compression", None)
    if compression is not None and compression not in COMPRESSIONS:
        yield f"compression is {compression!r}: workers read gzip and bzip2; remove it"
    if task.Strategy != STRATEGY:
        yield "it has a Strategy of its own, which is not used; remove it"
    if isinstance(task, RedriveTask) and task.Request != RedriveTask.Request:
        yield "it has a Request class of its own, which is not used; remove it"
    try:
        queue = routed_to(task)
    except (QueueNotFound, UnknownQueueError) as error:
        yield f"its queue is not in the topology: {_words(error)}; add it there, or name another"
    else:
        yield from _limits(task, time_limit, queue)


def _acknowledged_failures(task: Any) -> Iterator[str]:
    """Celery 5.7 has a setting for both, and one for each, which goes before it."""
    conf = task.app.conf
    on = [
        name
        for name, configured in (
            ("acks_on_failure", conf.task_acks_on_failure),
            ("acks_on_timeout", conf.task_acks_on_timeout),
        )
        if getattr(task, name) and not (configured or conf.task_acks_on_failure_or_timeout)
    ]
    if len(on) > 1 and task.acks_on_failure_or_timeout:
        on = ["acks_on_failure_or_timeout"]
    for name in on:
        yield f"{name} is on: a failure would be acknowledged; remove the override"


def _limits(task: Any, time_limit: float | None, queue: WorkQueue | None) -> Iterator[str]:
    if not (limit := task.time_limit or time_limit):
        yield "it has no time limit: its lease could not end; set time_limit"
        return
    # A soft limit that comes from the configuration is not the task's word, and below its hard one no loss.
    soft = task.soft_time_limit
    if soft and soft > limit and soft != task.app.conf.task_soft_time_limit:
        yield (
            f"its soft_time_limit of {soft:g} s is over its hard limit of {limit:g} s: it would never be "
            "warned; lower it"
        )
    if queue is not None and limit > queue.time_limit_s:
        yield (
            f"its hard time limit of {limit:g} s (its time_limit, or REDRIVE_WORKER_TIME_LIMIT_S for all) "
            f"is over the {queue.time_limit_s:g} s of queue {queue.name!r} (time_limit_s); "
            "lower the one or raise the other"
        )


def _words(error: Exception) -> str:
    return str(error.args[0]) if error.args else type(error).__name__
