"""The work queue of a task, and what it says where the task says nothing."""

from __future__ import annotations

from typing import Any

from celery.exceptions import QueueNotFound

from topology.errors import UnknownQueueError
from topology.spec import Ladder, WorkQueue
from workers import child


def routed_to(task: Any) -> WorkQueue | None:
    """The queue that a publish of the task goes to; None where a router needs the arguments to tell.

    Raises:
        QueueNotFound, UnknownQueueError: it goes to no queue of the topology; the message says where.
    """
    environment = getattr(task.app, "environment", None)
    if environment is None:  # an app of Celery's own
        return None
    options = {"queue": task.queue} if getattr(task, "queue", None) else {}
    try:
        routed = task.app.amqp.router.route(options, task.name, task_type=task)
    except QueueNotFound:
        raise
    except Exception:  # noqa: BLE001 - a router of the user's, called without arguments
        return None
    exchange = getattr(task, "exchange", None) or routed.get("exchange")
    if "queue" not in routed or exchange:
        raise UnknownQueueError(f"it is sent to exchange {getattr(exchange, 'name', exchange)!r}")
    queue: WorkQueue = environment.topology.queue(routed["queue"].name)
    return queue


def routed_queue(task: Any) -> WorkQueue | None:
    """Where a publish of the task goes, as far as that is one of the topology's queues."""
    try:
        return routed_to(task)
    except (QueueNotFound, UnknownQueueError):
        return None


def ladder_of(task: Any) -> Ladder:
    """That of the queue that delivered the running attempt; outside of one, that of the routed queue.

    A task that goes to no queue of the topology has the defaults, which are Celery's.
    """
    if child.current() is not None:
        delivered_by = (task.request.delivery_info or {}).get("routing_key")
        for queue in task.app.environment.topology.queues:
            if queue.name == delivered_by:
                found: Ladder = queue.ladder
                return found
    routed = routed_queue(task)
    return routed.ladder if routed else Ladder()


class MaxRetries:
    """The default of `max_retries`: one less than the ladder's attempts. A task's own value hides it."""

    def __get__(self, task: Any, owner: type) -> int:
        return (Ladder() if task is None else ladder_of(task)).attempts - 1
