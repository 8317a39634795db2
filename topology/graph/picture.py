"""A topology drawn, in the form that is asked for."""

from __future__ import annotations

from typing import Literal, TypeAlias

from topology.entities import Entities
from topology.graph.dot import dot
from topology.graph.mermaid import mermaid
from topology.graph.model import graph_of, only
from topology.graph.svg import svg
from topology.spec import Topology

Form: TypeAlias = Literal["mermaid", "dot", "svg"]


def picture(topology: Topology, entities: Entities, form: Form, queue: str | None = None) -> str:
    """All of it, or one work queue with what hangs on it.

    In the text forms a ladder is one node where several are drawn.

    Raises:
        UnknownQueueError: there is no such work queue.
    """
    graph = graph_of(entities)
    if queue is not None:
        graph = only(graph, topology.queue(queue).name)
    if form == "svg":
        return svg(graph, queue or ", ".join(each.name for each in topology.queues))
    whole = queue is None and len(graph.families) > 1
    return (mermaid if form == "mermaid" else dot)(graph, whole=whole)
