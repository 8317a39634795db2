"""A worker without the hook into py-amqp's parser: what it cannot parse raises there, or ends the process."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from amqp.basic_message import Message
from amqp.serialization import GenericContent

from tests.support.worker_jobs import QUEUE, Anything
from topology.spec import JobType, Topology
from workers import parsing
from workers.celery_app import Redrive

DELIVERY_LIMIT = 4
TOPOLOGY = Topology(
    queues=(replace(QUEUE, delivery_limit=DELIVERY_LIMIT, prefetch=16),),
    jobs=(JobType("t.fine", QUEUE.name, Anything),),
)

app = Redrive("unhooked")


@app.task(name="t.fine")
def fine() -> str:
    return "fine"


def _load_properties(self: Any, class_id: int, buf: bytes, offset: int) -> int:
    self.raw_properties, self.unparsed = bytes(buf[offset:]), None
    try:
        return int(GenericContent._load_properties(self, class_id, buf, offset))
    except Exception:
        if "TEST_POISON_KILLS" in os.environ:
            os._exit(1)
        raise


def install() -> None:
    """In the place of the worker's own."""
    Message._load_properties = _load_properties


parsing.install = install
