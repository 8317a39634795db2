"""An app that was adopted: its topology has no catalogue of jobs."""

from __future__ import annotations

from topology.spec import Ladder, Topology, WorkQueue
from workers.celery_app import Redrive

TOPOLOGY = Topology(queues=(WorkQueue("work", ladder=Ladder(tick_ms=100, steps=10), prefetch=4),))

app = Redrive("uncatalogued")


@app.task(name="u.fine")
def fine() -> str:
    return "fine"
