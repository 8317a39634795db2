"""A topology whose queues use the fields that the samples leave alone, and tasks for them."""

from __future__ import annotations

import time

from topology.spec import Ladder, Topology, WorkQueue
from workers.celery_app import Redrive
from workers.task import RedriveTask

LADDER = Ladder(tick_ms=100, steps=6, shared="common")
PRIORITIES = "priorities are for classic queues"
TOPOLOGY = Topology(
    queues=(
        WorkQueue("fresh", LADDER, message_ttl_s=1.5, prefetch=1),
        WorkQueue("old", LADDER, type="classic", classic_reason="a test", message_ttl_s=1.5, prefetch=1),
        WorkQueue("ranked", LADDER, type="classic", classic_reason=PRIORITIES, max_priority=5, prefetch=1),
        WorkQueue("alone", LADDER, single_active_consumer=True),
    ),
)
PATIENT = Topology((WorkQueue("patient", LADDER, consumer_timeout_s=7_200, time_limit_s=7_000),))

app = Redrive("fields")
app.conf.task_routes = {f"{queue.name}.*": {"queue": queue.name} for queue in TOPOLOGY.queues}


def sleeps(self: RedriveTask, seconds: float = 0.0) -> None:
    time.sleep(seconds)


def flaky(self: RedriveTask) -> None:
    """Fails once."""
    if self.request.retries == 0:
        raise self.retry(countdown=1)


for _queue in TOPOLOGY.queues:
    app.task(sleeps, bind=True, name=f"{_queue.name}.sleeps")
    app.task(flaky, bind=True, name=f"{_queue.name}.flaky")
