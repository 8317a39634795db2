"""The graph in Graphviz's language. https://graphviz.org/doc/info/lang.html"""

from __future__ import annotations

from collections.abc import Iterator

from topology.graph.model import Graph, Kind, Node
from topology.graph.palette import EDGES, FRAME, INK, NODES
from topology.graph.text import drawn_edges, ladder_label, node_label

_SHAPES: dict[Kind, str] = {
    "work": "box",
    "dlx": "hexagon",
    "dlq": "cylinder",
    "step": "note",
    "due": "hexagon",
    "unrouted": "hexagon",
    "catch_all": "cylinder",
}
_STYLES = {
    "dies": "bold",
    "kept": "solid",
    "retried": "dashed",
    "waits": "solid",
    "due": "bold",
    "unrouted": "dotted",
}


def dot(graph: Graph, *, whole: bool) -> str:
    """`whole`: a ladder is one node, as there are too many steps to see them all."""
    return "\n".join(_lines(graph, whole)) + "\n"


def _lines(graph: Graph, whole: bool) -> Iterator[str]:
    yield "digraph topology {"
    direction = "LR" if whole else "TB"  # a ladder's steps make a long chain
    yield f'  graph [rankdir={direction}, fontname="sans-serif", nodesep=0.3];'
    yield f'  node [fontname="sans-serif", fontsize=11, style=filled, fontcolor="{INK}"];'
    yield f'  edge [fontname="sans-serif", fontsize=9, fontcolor="{INK}"];'
    for number, family in enumerate(graph.families):
        yield f"  subgraph cluster_{number} {{"
        yield f'    label={_quoted(family.ladder)}; color="{FRAME}";'
        for line in family.lines:
            yield from (f"    {_node(each, node_label(each))}" for each in (line.work, line.dlx, line.dlq))
        if whole:
            yield f"    {_node(family.steps[0], ladder_label(family))}"
        else:
            yield from (f"    {_node(step, node_label(step))}" for step in family.steps)
        yield f"    {_node(family.due, node_label(family.due))}"
        yield "  }"
    yield from (f"  {_node(each, node_label(each))}" for each in (graph.unrouted, graph.catch_all))
    for edge in drawn_edges(graph, whole):
        label = f", label={_quoted(edge.label)}" if edge.label else ""
        # The way back must not turn the ranks round.
        back = ", constraint=false" if edge.role == "due" else ""
        yield (
            f"  {_quoted(edge.source)} -> {_quoted(edge.target)} "
            f'[color="{EDGES[edge.role]}", style={_STYLES[edge.role]}{label}{back}];'
        )
    yield "}"


def _node(node: Node, label: str) -> str:
    fill, line = NODES[node.kind]
    width = ", penwidth=2.5" if node.kind == "work" else ""
    return (
        f"{_quoted(node.name)} [label={_quoted(label)}, shape={_SHAPES[node.kind]}, "
        f'fillcolor="{fill}", color="{line}"{width}];'
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
