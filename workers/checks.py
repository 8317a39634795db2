"""What a worker refuses to start with, because a message could be lost under it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from workers import pools
from workers.errors import UnsafeTaskError
from workers.setting_checks import unsafe_options, unsafe_settings
from workers.task_checks import BUILT_IN, unsafe_task

if TYPE_CHECKING:
    from workers.celery_app import Redrive


def tasks_found(tasks: Mapping[str, Any], time_limit: float | None) -> Iterator[str]:
    """The findings about all tasks but Celery's own; `time_limit` as `unsafe_task` takes it."""
    return (
        f"task {name}: {finding}"
        for name, task in sorted(tasks.items())
        if not name.startswith(BUILT_IN)
        for finding in unsafe_task(task, time_limit)
    )


def refuse_unsafe_tasks(tasks: Mapping[str, Any], time_limit: float | None) -> None:
    """Raises UnsafeTaskError, naming each task and setting."""
    if found := list(tasks_found(tasks, time_limit)):
        raise UnsafeTaskError("; ".join(found))


def settings_found(app: Redrive, pool_class: type, controller: Any = None) -> Iterator[str]:
    """The findings about all that is no task's.

    Args:
        controller: Celery's `WorkController`, in a worker that starts.
    """
    environment = app.environment
    yield from unsafe_settings(app)
    yield from pools.unsafe_pool(pool_class, controller, app.conf)
    if controller is not None:
        yield from unsafe_options(controller)
    # The broker would dead-letter it before the row's bound is reached, without a reason of ours.
    for queue in environment.topology.queues:
        if queue.type == "quorum" and environment.worker.crash_bound > queue.delivery_limit:
            yield (
                f"REDRIVE_WORKER_CRASH_BOUND is {environment.worker.crash_bound}, over the delivery limit of "
                f"queue {queue.name!r} ({queue.delivery_limit}); lower the one or raise the other"
            )


def refuse_unsafe(app: Redrive, pool_class: type, controller: Any) -> None:
    """All that can be said before there is a connection, at once.

    Raises:
        UnsafeTaskError: naming each task and setting.
    """
    found = [*settings_found(app, pool_class, controller), *tasks_found(app.tasks, controller.time_limit)]
    if found:
        raise UnsafeTaskError("; ".join(found))
