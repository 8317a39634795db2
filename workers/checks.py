"""What a worker refuses to start with, because a message could be lost under it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workers.errors import UnsafeTaskError
from workers.home_queue import routed_queue
from workers.task import RedriveTask

if TYPE_CHECKING:
    from workers.celery_app import Redrive

# Celery's own tasks: they wait for chords and the like, and lose nothing of ours.
BUILT_IN = "celery."


def unsafe_task(task: Any, time_limit: float | None) -> Iterator[str]:
    """The findings about one task, each naming the setting and the way out.

    Args:
        time_limit: the worker's hard limit in seconds, which holds for tasks without one.
    """
    if not isinstance(task, RedriveTask):
        yield "its base class is not RedriveTask; derive it from workers.task.RedriveTask"
    if not task.acks_late:
        yield "acks_late is off: acknowledged before it has run; remove the override"
    if task.acks_on_failure or task.acks_on_timeout:
        yield "acks_on_failure_or_timeout is on: a failure would be acknowledged; remove the override"
    if not task.reject_on_worker_lost:
        yield "reject_on_worker_lost is off: a lost process would lose the message; remove the override"
    if task.max_retries is None:
        yield "max_retries is None: it would be retried for ever; set a number"
    if not (limit := task.time_limit or time_limit):
        yield "it has no time limit: its lease could not end; set time_limit"
    elif (queue := routed_queue(task)) is not None and limit > queue.time_limit_s:
        yield (
            f"its hard time limit of {limit:g} s (its time_limit, or REDRIVE_WORKER_TIME_LIMIT_S for all) "
            f"is over the {queue.time_limit_s:g} s of queue {queue.name!r} (time_limit_s); "
            "lower the one or raise the other"
        )


def refuse_unsafe_tasks(tasks: Mapping[str, Any], time_limit: float | None) -> None:
    """Raises UnsafeTaskError, naming each task and setting."""
    found = [
        f"task {name}: {finding}"
        for name, task in sorted(tasks.items())
        if not name.startswith(BUILT_IN)
        for finding in unsafe_task(task, time_limit)
    ]
    if found:
        raise UnsafeTaskError("; ".join(found))


def refuse_unsafe_settings(app: Redrive, pool_class: type) -> None:
    """Raises UnsafeTaskError, naming the setting."""
    conf, environment = app.conf, app.environment
    found = []
    if conf.broker_url != environment.broker.address.kombu_url():
        found.append("broker_url is not that of REDRIVE_AMQP_URL; remove it from the configuration")
    if not (conf.broker_transport_options or {}).get("confirm_publish"):
        found.append(
            "broker_transport_options has no confirm_publish: publishes could be lost; set it to True"
        )
    if conf.task_create_missing_queues:
        found.append("task_create_missing_queues is on: a typo would make a queue without dead letters")
    if not pool_class.__module__.endswith(".prefork"):
        found.append(f"the pool is {pool_class.__module__}; only prefork is supported (remove --pool)")
    # The broker would dead-letter it before the row's bound is reached, without a reason of ours.
    found += [
        f"REDRIVE_WORKER_CRASH_BOUND is {environment.worker.crash_bound}, over the delivery limit of queue "
        f"{queue.name!r} ({queue.delivery_limit}); lower the one or raise the other"
        for queue in environment.topology.queues
        if queue.type == "quorum" and environment.worker.crash_bound > queue.delivery_limit
    ]
    known = {queue.name for queue in environment.topology.queues}
    found += [
        f"queue {name!r} is not in the topology; there are: {', '.join(sorted(known))}"
        for name in app.amqp.queues.consume_from
        if name not in known
    ]
    if found:
        raise UnsafeTaskError("; ".join(found))
