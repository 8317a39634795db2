"""Remote control that would make a queue: a worker consumes the topology's queues alone.

Celery's `add_consumer` (`celery control`, Flower) declares a queue that it does not know: bare, without a
dead-letter exchange, so that what is rejected from it would be lost.
"""

from __future__ import annotations

import logging
from typing import Any

from celery.worker import control

logger = logging.getLogger(__name__)
_celerys_add_consumer = control.Panel.data["add_consumer"]


def listen() -> None:
    """Take the place of Celery's command, in this process."""
    control.Panel.data["add_consumer"] = add_consumer


def add_consumer(state: Any, queue: str, *args: Any, **options: Any) -> Any:
    """Celery's, for the queues of `task_queues`."""
    known = sorted(state.app.amqp.queues)
    if state.app.conf.task_create_missing_queues or queue in known:
        return _celerys_add_consumer(state, queue, *args, **options)
    logger.error(
        "refused to consume %r: not in the topology", queue, extra={"action": "add_consumer_refused"}
    )
    return control.nok(f"queue {queue!r} is not in the topology; there are: {', '.join(known)}")
