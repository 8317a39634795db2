"""The two worlds of `benchmarks.waiting`: one task, on our app and on a plain Celery app."""

from __future__ import annotations

import os
import time

from celery import Celery
from pydantic import BaseModel

from topology.spec import JobType, Topology, WorkQueue
from workers.celery_app import Redrive

TASK = "waiting.note"
NOTES = "WAITING_NOTES"


class Payload(BaseModel):
    due: float


TOPOLOGY = Topology((WorkQueue("work", prefetch=64),), (JobType(TASK, "work", Payload),))

ours = Redrive("waiting") if "REDRIVE_AMQP_URL" in os.environ else None
plain = Celery("plain", broker=os.environ.get("PLAIN_AMQP_URL"), set_as_current=ours is None)
plain.conf.update(task_default_queue="work", task_acks_late=True, task_ignore_result=True)


def note(due: float) -> None:
    """One line: by how many seconds it runs late."""
    with open(os.environ[NOTES], "a") as file:
        file.write(f"{time.time() - due:.4f}\n")


for app in (ours, plain):
    if app is not None:
        app.task(name=TASK, shared=False)(note)
