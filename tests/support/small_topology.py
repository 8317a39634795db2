"""Two work queues with a short ladder: the sample catalogue's 71 queues take seconds to declare."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from topology.spec import JobType, Ladder, Topology, WorkQueue


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    order: str


TOPOLOGY = Topology(
    queues=(
        WorkQueue("orders", Ladder(steps=2), delivery_limit=2),
        WorkQueue("mails", Ladder(steps=2), delivery_limit=2),
    ),
    jobs=(JobType("orders.place", "orders", Order),),
)
