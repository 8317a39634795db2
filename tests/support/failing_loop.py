"""A worker whose event loop fails from its start on, at every turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from celery.signals import worker_ready

from tests.support.worker_jobs import QUEUE
from topology.spec import Topology
from workers import unexpected
from workers.celery_app import Redrive

unexpected.FEWEST = 3
DELIVERY_LIMIT = 3
TOPOLOGY = Topology((replace(QUEUE, delivery_limit=DELIVERY_LIMIT),))

app = Redrive("failing")


@worker_ready.connect
def plant(sender: Any, **_: Any) -> None:
    sender.hub.on_tick.add(fail)


def fail() -> None:
    raise RuntimeError("planted")
