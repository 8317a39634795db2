"""The topology: what is shown of it, an example of each form, and the operation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from api.openapi import story
from api.openapi.operation import Answer, Body, Operation
from api.openapi.schema import Count, Shown
from topology.catalogue import TOPOLOGY
from topology.entities import compile_topology
from topology.render.description import description

Arguments = Annotated[dict[str, str | int | bool], Field(description="as AMQP declares it")]


class LadderStep(Shown):
    name: str
    delay_ms: Count


class LadderShown(Shown):
    """Of tick and steps: step n delays by tick_ms x 2^n milliseconds."""

    tick_ms: int = Field(ge=1)
    shared: str | None = Field(description="the name of a ladder that several queues have in common")
    attempts: int = Field(ge=1, description="how often a job is tried where its task says nothing")
    jitter: float = Field(ge=0, le=1)
    steps: list[LadderStep] = Field(description="the shortest first")
    due_exchange: str = Field(description="where the ladder ends")


class DeclaredQueue(Shown):
    """A work queue as it is declared, with the names that are derived from it."""

    name: str
    ladder: LadderShown
    type: Literal["quorum", "classic"]
    classic_reason: str
    delivery_limit: int
    prefetch: int
    watermark: int
    message_ttl_s: float | None
    max_priority: int | None
    single_active_consumer: bool
    consumer_timeout_s: float | None
    time_limit_s: float
    description: str
    dead_letter_exchange: str
    dead_letter_queue: str
    policy: str | None


class DeclaredJob(Shown):
    name: str
    queue: str
    summary: str


class ExchangeShown(Shown):
    name: str
    type: Literal["direct", "fanout", "topic"]
    arguments: Arguments


class QueueShown(Shown):
    name: str
    arguments: Arguments


class BindingShown(Shown):
    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    routing_key: str


class PolicyShown(Shown):
    name: str
    pattern: str
    definition: Arguments
    apply_to: Literal["queues"]
    priority: int


class EntitiesShown(Shown):
    """All that is on the broker."""

    exchanges: list[ExchangeShown]
    queues: list[QueueShown]
    bindings: list[BindingShown]
    policies: list[PolicyShown]


class TopologyShown(Shown):
    queues: list[DeclaredQueue]
    jobs: list[DeclaredJob]
    entities: EntitiesShown


def _example() -> dict[str, Any]:
    """The sample queue, of all that hangs on it the first of each kind."""
    shown = description(TOPOLOGY, compile_topology(TOPOLOGY), story.QUEUE)
    (queue,) = shown["queues"]
    queue["ladder"]["steps"] = queue["ladder"]["steps"][:2]
    entities = {kind: list(found)[:2] for kind, found in shown["entities"].items()}
    return {"queues": [queue], "jobs": shown["jobs"], "entities": entities}


_SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="1400" height="900">…</svg>'
_MERMAID = 'flowchart TB\n  subgraph f0 ["payments"]\n…'
OPERATIONS = {
    "GET /topology": Operation(
        "get_topology",
        (
            Answer(
                200,
                "What is declared, and what that is on the broker.",
                (
                    Body(TopologyShown, _example()),
                    Body(None, _SVG, "image/svg+xml"),
                    Body(None, _MERMAID, "text/vnd.mermaid"),
                ),
                ("Vary",),
            ),
        ),
        ("unknown-queue", "not-acceptable"),
    ),
}
