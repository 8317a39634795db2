"""A strict reader of Mermaid flowcharts as we write them: what it takes, Mermaid takes.

https://mermaid.js.org/syntax/flowchart.html
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

# Inside quotes Mermaid takes anything but a quote; "#name;" and "#35;" are its entities, <br/> a new line.
_TEXT = r'"((?:[^"#<>&\n]|#[a-z0-9]+;|<br/>)*)"'
_SHAPES = (r"\[", r"\]"), (r"\{\{", r"\}\}"), (r"\[\(", r"\)\]"), (r"\(\[", r"\]\)")
_NODE = re.compile(
    "|".join(
        f"(?:(?P<n{at}>n[0-9]+){left}{_TEXT}{right}:::(?P<k{at}>[a-z_]+))"
        for at, (left, right) in enumerate(_SHAPES)
    )
)
_EDGE = re.compile(rf"(n[0-9]+) (==>|-->|-\.->)(?:\|{_TEXT}\|)? (n[0-9]+)")
_SUBGRAPH = re.compile(rf"subgraph f[0-9]+ \[{_TEXT}\]")
_CLASS = re.compile(
    r"classDef ([a-z_]+) fill:#[0-9a-f]{6},stroke:#[0-9a-f]{6},stroke-width:[0-9]px,color:#[0-9a-f]{6}"
)
_LINKS = re.compile(r"linkStyle ([0-9]+(?:,[0-9]+)*) stroke:#[0-9a-f]{6}")


@dataclass
class Flowchart:
    """`nodes`: label by id; `edges`: source, label, target."""

    direction: str
    nodes: dict[str, str] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)


def read(text: str) -> Flowchart:
    """Raises ValueError: a line that Mermaid might not take."""
    head, *lines = text.splitlines()
    if not text.endswith("\n") or not re.fullmatch("flowchart (LR|TB)", head):
        raise ValueError(f"no head of a flowchart: {head!r}")
    chart = Flowchart(head.rpartition(" ")[2])
    kinds, classes, styled, depth = set[str](), set[str](), list[int](), 0
    for line in map(str.strip, lines):
        if node := _NODE.fullmatch(line):
            found = [value for value in node.groups() if value is not None]
            if found[0] in chart.nodes:
                raise ValueError(f"a node twice: {line!r}")
            chart.nodes[found[0]] = _read(found[1])
            kinds.add(found[2])
        elif edge := _EDGE.fullmatch(line):
            if not {edge[1], edge[4]} <= chart.nodes.keys():
                raise ValueError(f"an edge of no node: {line!r}")
            chart.edges.append((edge[1], _read(edge[3] or ""), edge[4]))
        elif _SUBGRAPH.fullmatch(line) and depth == 0:
            depth += 1
        elif line == "end" and depth == 1:
            depth -= 1
        elif made := _CLASS.fullmatch(line):
            classes.add(made[1])
        elif made := _LINKS.fullmatch(line):
            styled += map(int, made[1].split(","))
        else:
            raise ValueError(f"not understood: {line!r}")
    if depth or not kinds <= classes or sorted(styled) != list(range(len(chart.edges))):
        raise ValueError("a subgraph without an end, or a style of nothing")
    return chart


def _read(label: str) -> str:
    entities = re.sub(r"#([a-z]+);", r"&\1;", re.sub(r"#([0-9]+);", lambda found: f"&#{found[1]};", label))
    return html.unescape(entities.replace("<br/>", "\n"))
