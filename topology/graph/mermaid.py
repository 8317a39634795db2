"""The graph as a Mermaid flowchart. https://mermaid.js.org/syntax/flowchart.html"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from topology.graph.model import Edge, Family, Graph, Kind, Node
from topology.graph.palette import EDGES, INK, NODES
from topology.graph.text import drawn_edges, ladder_label, node_label

# Opening and closing brackets: a shape for each kind, so that colour is not needed to tell them apart.
_SHAPES: dict[Kind, tuple[str, str]] = {
    "work": ("[", "]"),
    "dlx": ("{{", "}}"),
    "dlq": ("[(", ")]"),
    "step": ("([", "])"),
    "due": ("{{", "}}"),
    "unrouted": ("{{", "}}"),
    "catch_all": ("[(", ")]"),
}
_ARROWS = {"dies": "==>", "kept": "-->", "retried": "-.->", "waits": "-->", "due": "==>", "unrouted": "-.->"}


def mermaid(graph: Graph, *, whole: bool) -> str:
    """`whole`: a ladder is one node, as there are too many steps to see them all."""
    return "\n".join(_lines(graph, whole)) + "\n"


def _lines(graph: Graph, whole: bool) -> Iterator[str]:
    ids: dict[str, str] = {}

    def node(shown: Node, label: str) -> str:
        ids[shown.name] = f"n{len(ids)}"
        left, right = _SHAPES[shown.kind]
        return f'{ids[shown.name]}{left}"{_escaped(label)}"{right}:::{shown.kind}'

    yield f"flowchart {'LR' if whole else 'TB'}"  # a ladder's steps make a long chain
    for number, family in enumerate(graph.families):
        yield f'  subgraph f{number} ["{_escaped(family.ladder)}"]'
        for line in family.lines:
            yield from (f"    {node(each, node_label(each))}" for each in (line.work, line.dlx, line.dlq))
        yield from (f"    {each}" for each in _ladder(family, whole, node))
        yield f"    {node(family.due, node_label(family.due))}"
        yield "  end"
    yield from (f"  {node(each, node_label(each))}" for each in (graph.unrouted, graph.catch_all))
    links: dict[str, list[int]] = defaultdict(list)
    for number, edge in enumerate(drawn_edges(graph, whole)):
        links[EDGES[edge.role]].append(number)
        yield f"  {ids[edge.source]} {_arrow(edge)} {ids[edge.target]}"
    for kind, (fill, stroke) in NODES.items():
        width = 3 if kind == "work" else 1
        yield f"  classDef {kind} fill:{fill},stroke:{stroke},stroke-width:{width}px,color:{INK}"
    for colour, numbers in links.items():
        yield f"  linkStyle {','.join(map(str, numbers))} stroke:{colour}"


def _ladder(family: Family, whole: bool, node: object) -> Iterator[str]:
    assert callable(node)
    if whole:
        yield node(family.steps[0], ladder_label(family))
    else:
        yield from (node(step, node_label(step)) for step in family.steps)


def _arrow(edge: Edge) -> str:
    label = f'|"{_escaped(edge.label)}"|' if edge.label else ""
    return f"{_ARROWS[edge.role]}{label}"


def _escaped(text: str) -> str:
    """Mermaid's own entities: `#quot;` and the like."""
    plain = text.replace("#", "#35;").replace("&", "#amp;").replace('"', "#quot;")
    return plain.replace("<", "#lt;").replace(">", "#gt;").replace("\n", "<br/>")
