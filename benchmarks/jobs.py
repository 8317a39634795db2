"""The queues and tasks that are measured, and the apps that run them."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery

from benchmarks import tally
from topology.address import AmqpAddress
from topology.kombu_entities import task_queues
from topology.spec import Ladder, Topology, WorkQueue
from workers.celery_app import Redrive

# The prefetch multiplier is Redrive's field of a queue; nothing of it is declared.
PREFETCHES = (1, 4, 16)
RESULTS = "BENCH_RESULTS"
TOPOLOGY = Topology(
    tuple(WorkQueue(f"bench.{prefetch}", Ladder(steps=2), prefetch=prefetch) for prefetch in PREFETCHES)
)


def noop() -> None:
    """Nothing but being counted."""
    tally.count()


def nap() -> None:
    """5 ms in which the process waits, as for another service."""
    time.sleep(0.005)
    tally.count()


def redrive() -> Celery:
    """With a row for each job and each attempt."""
    return _with_tasks(Redrive("bench"))


def celery() -> Celery:
    """Plain Celery over the same queues; where `BENCH_RESULTS` is a URL, with that result backend."""
    app = Celery("bench")
    app.conf.update(
        broker_url=AmqpAddress.parse(os.environ["REDRIVE_AMQP_URL"]).kombu_url(),
        broker_connection_retry_on_startup=True,
        result_backend=os.environ.get(RESULTS) or None,
        task_ignore_result=RESULTS not in os.environ,
        task_acks_late=True,
        task_create_missing_queues=False,
        worker_detect_quorum_queues=True,
        task_default_queue=TOPOLOGY.queues[0].name,
        task_queues=task_queues(TOPOLOGY),
    )
    return _with_tasks(app)


def _with_tasks(app: Any) -> Celery:
    app.task(name="bench.noop")(noop)
    app.task(name="bench.nap")(nap)
    made: Celery = app
    return made
