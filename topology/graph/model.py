"""What is on the broker as a picture shows it: families of work queues round a ladder, nodes and edges.

A ladder step's exchange and queue have one name and are one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from topology.entities import Argument, Entities, Queue
from topology.names import policy

Kind = Literal["work", "dlx", "dlq", "step", "due", "unrouted", "catch_all"]
# dies: leaves a work queue for good; kept: reaches a dead-letter queue; retried: a worker publishes it to the
# ladder; waits: a step's delay is over, or passed by; due: back to work; unrouted: no binding takes it.
Role = Literal["dies", "kept", "retried", "waits", "due", "unrouted"]


@dataclass(frozen=True)
class Node:
    name: str
    kind: Kind
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    role: Role
    label: str = ""


@dataclass(frozen=True)
class Line:
    """A work queue and where its dead letters go: with which routing key, and why."""

    work: Node
    dlx: Node
    dlq: Node
    key: str
    ways: tuple[str, ...]


@dataclass(frozen=True)
class Family:
    """The work queues that share a ladder, mostly one. `steps`: the longest first, as a retry passes them.

    `others` counts the queues that share the ladder and are not shown.
    """

    lines: tuple[Line, ...]
    steps: tuple[Node, ...]
    due: Node
    others: int = 0

    @property
    def ladder(self) -> str:
        """What the names of its steps begin with."""
        return self.due.name.removesuffix(".due")


@dataclass(frozen=True)
class Graph:
    families: tuple[Family, ...]
    unrouted: Node
    catch_all: Node

    @property
    def nodes(self) -> Iterator[Node]:
        for family in self.families:
            for line in family.lines:
                yield from (line.work, line.dlx, line.dlq)
            yield from family.steps
            yield family.due
        yield from (self.unrouted, self.catch_all)

    @property
    def edges(self) -> Iterator[Edge]:
        for family in self.families:
            for line in family.lines:
                yield Edge(line.work.name, line.dlx.name, "dies", ", ".join(line.ways))
                yield Edge(line.dlx.name, line.dlq.name, "kept", line.key)
                yield Edge(line.dlx.name, self.unrouted.name, "unrouted", "no binding")
                yield Edge(line.work.name, family.steps[0].name, "retried", "retry, by the worker")
                yield Edge(family.due.name, line.work.name, "due", "due")
            after = [*family.steps[1:], family.due]
            for step, following in zip(family.steps, after, strict=True):
                yield Edge(step.name, following.name, "waits", delay_of(step))
                yield Edge(step.name, self.unrouted.name, "unrouted", "no binding")
            yield Edge(family.due.name, self.unrouted.name, "unrouted", "no binding")
        yield Edge(self.unrouted.name, self.catch_all.name, "unrouted")


def graph_of(entities: Entities) -> Graph:
    """The graph of a compiled topology."""
    step_over = {
        str(queue.arguments["x-dead-letter-exchange"]): queue for queue in entities.queues if _is_step(queue)
    }
    bound_to = {(each.source, each.routing_key): each.destination for each in entities.bindings}
    due_of = {each.destination: each.source for each in entities.bindings if each.source in step_over}
    alternate = {each.name: str(each.arguments.get("alternate-exchange", "")) for each in entities.exchanges}
    policies = {each.name: each.definition for each in entities.policies}
    families: dict[str, Family] = {}
    unrouted = ""
    for queue in entities.queues:
        if "x-dead-letter-exchange" not in queue.arguments or _is_step(queue):
            continue
        dlx, key = (
            str(queue.arguments["x-dead-letter-exchange"]),
            str(queue.arguments["x-dead-letter-routing-key"]),
        )
        unrouted, due = alternate[dlx], due_of[queue.name]
        line = Line(
            Node(queue.name, "work", tuple(_notes(queue, policies.get(policy(queue.name), {})))),
            Node(dlx, "dlx"),
            Node(bound_to[dlx, key], "dlq"),
            key,
            (
                "rejected",
                "expired",
                *(["returned too often"] if "x-delivery-limit" in queue.arguments else []),
            ),
        )
        if due not in families:
            families[due] = Family((), tuple(_steps(due, step_over)), Node(due, "due"))
        families[due] = replace(families[due], lines=(*families[due].lines, line))
    return Graph(
        tuple(families.values()), Node(unrouted, "unrouted"), Node(bound_to[unrouted, ""], "catch_all")
    )


def only(graph: Graph, queue: str) -> Graph:
    """What one work queue has to do with."""
    for family in graph.families:
        for line in family.lines:
            if line.work.name == queue:
                return replace(
                    graph, families=(replace(family, lines=(line,), others=len(family.lines) - 1),)
                )
    return replace(graph, families=())


def delay_of(step: Node) -> str:
    """`512s` of `payments.retry.512s`: the delay as names have it, whatever the time scale."""
    return step.name.rpartition(".")[2]


def _is_step(queue: Queue) -> bool:
    return "x-message-ttl" in queue.arguments


def _steps(due: str, step_over: dict[str, Queue]) -> list[Node]:
    found: list[Node] = []
    name = due
    while name in step_over:
        name = step_over[name].name
        found.insert(0, Node(name, "step"))
    return found


def _notes(queue: Queue, by_policy: Mapping[str, Argument]) -> Iterator[str]:
    arguments = queue.arguments
    yield queue.type
    if "x-delivery-limit" in arguments:
        yield f"delivery limit {arguments['x-delivery-limit']}"
    if "x-max-priority" in arguments:
        yield f"priorities 0 to {arguments['x-max-priority']}"
    if arguments.get("x-single-active-consumer"):
        yield "single active consumer"
    for key, milliseconds in by_policy.items():
        yield f"{key.replace('-', ' ')} {int(milliseconds) / 1000:g} s"
