"""Two queues, one with a low watermark, whose jobs take a text of any length. For REDRIVE_TOPOLOGY."""

from __future__ import annotations

from pydantic import BaseModel

from topology.spec import JobType, Ladder, Topology, WorkQueue

WATERMARK = 10


class Payload(BaseModel):
    text: str


LADDER = Ladder(steps=2)
QUEUES = (
    WorkQueue("texts", LADDER),
    WorkQueue("others", LADDER),
    WorkQueue("low", LADDER, watermark=WATERMARK),
)
TOPOLOGY = Topology(QUEUES, tuple(JobType(f"{queue.name}.job", queue.name, Payload) for queue in QUEUES))
