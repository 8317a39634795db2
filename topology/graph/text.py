"""What the two writers of text forms share: labels, and which edges are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from topology.graph.model import Edge, Family, Graph, Node, delay_of


def node_label(node: Node) -> str:
    """The name, and under it what else there is to say."""
    return "\n".join((node.name, *([", ".join(node.notes)] if node.notes else ())))


def ladder_label(family: Family) -> str:
    """A whole ladder as one node."""
    shortest, longest = delay_of(family.steps[-1]), delay_of(family.steps[0])
    count = "1 step" if len(family.steps) == 1 else f"{len(family.steps)} steps"
    return f"{family.ladder}.retry.*\n{count}: {shortest} to {longest}"


def drawn_edges(graph: Graph, whole: bool) -> Iterator[Edge]:
    """The edges, a ladder's many ways to the catch-all as one; for a `whole` topology its steps are one too.

    A ladder that is one node goes by the name of its first step.
    """
    steps = {step.name: family for family in graph.families for step in family.steps}
    for edge in graph.edges:
        family = steps.get(edge.source)
        if family is None:
            yield edge
        elif edge.role == "unrouted":
            if edge.source == family.steps[0].name:
                yield replace(edge, label="no binding, of any step")
        elif not whole:
            yield edge
        elif edge.target == family.due.name:
            yield replace(edge, source=family.steps[0].name, label="")
