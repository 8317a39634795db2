"""Delays that a task or a publisher asks for, and the way round the ladder that they take."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from topology.headers import DUE
from topology.ladder import route
from workers.outcomes import checked_delay_s

if TYPE_CHECKING:
    from workers.celery_app import Redrive


def asked_s(app: Any, countdown: Any, eta: Any) -> float:
    """Nominal seconds from now; 0 where nothing is asked for, or for a time that is over.

    As in Celery, a countdown goes before an eta, and a naive eta is in UTC, whatever the app's timezone.

    Raises:
        ValueError: over 366 days, not finite, or no ISO 8601 time.
        TypeError: no number and no time.
    """
    if countdown or not eta:
        return checked_delay_s(countdown or 0)
    if isinstance(eta, str):
        eta = datetime.fromisoformat(eta)
    aware = eta if eta.tzinfo else eta.replace(tzinfo=UTC)
    left_s = (aware - datetime.now(UTC)).total_seconds()
    # An eta is a real time; a scale below 1 shrinks delays only.
    return checked_delay_s(left_s) / float(app.environment.broker.time_scale)


def by_ladder(
    app: Redrive, name: str, args: Any, kwargs: Any, delay_s: float, options: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The options of a publish that goes straight to its queue's ladder.

    None where it is to go by the work queue, whose worker sends it round: a publish that names its own
    exchange, and one with an expiry, as the message's own TTL would cut the delay short.

    Args:
        delay_s: nominal.

    Raises:
        UnknownQueueError: it is routed to a queue that is not in the topology.
    """
    given = _set(options)
    task_type: Any = options.get("task_type") or app._tasks.get(name)
    if "task_type" not in given and task_type is not None:
        # Of a task that is sent by its name, Celery adds the options afterwards, its queue among them.
        given = {**_set(task_type._get_exec_options()), **given}
    if any(option in given for option in ("exchange", "routing_key", "router", "expires")):
        return None
    route_name = given.get("route_name") or name
    routed = app.amqp.router.route(dict(given), route_name, args, kwargs, task_type)
    queue = app.environment.topology.queue(routed["queue"].name)
    scale, now_ms = app.environment.broker.time_scale, int(time.time() * 1000)
    way = route(queue, delay_s, time_scale=scale, now_ms=now_ms)
    changed = {**options, "queue": None, "exchange": way.exchange, "routing_key": way.routing_key}
    if way.due_ms is not None:
        changed["headers"] = {**(options.get("headers") or {}), DUE: way.due_ms}
    return changed


def _set(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}
