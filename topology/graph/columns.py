"""Where things stand from left to right in the SVG: the same for all families of a graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from topology.graph.model import Family, Graph, Node, delay_of
from topology.graph.shapes import name_width, note_width

MARGIN = 28.0
BUS = 22.0  # between a node and a line that passes it
GAP = 150.0  # between columns: room for the words on an edge
STEP_GAP = 16.0
# Wider names are shortened.
WIDEST, LEAST_WORK, LEAST = 330.0, 180.0, 120.0
# Room for the words under a short ladder.
LEAST_LADDER = 440.0


@dataclass(frozen=True)
class Columns:
    """Left edges and widths, in pixels. `bus`: the line by which everything unrouted goes."""

    work: float
    work_width: float
    ladder: float
    dlx: float
    dlx_width: float
    dlq: float
    dlq_width: float
    bus: float
    end: float
    end_width: float

    @property
    def width(self) -> float:
        return self.end + self.end_width + MARGIN


def columns_of(graph: Graph) -> Columns:
    lines = [line for family in graph.families for line in family.lines]
    # A bus along the left side leads what is due to the upper ones of several queues.
    work = MARGIN + (2 * BUS if any(len(family.lines) > 1 for family in graph.families) else 0)
    work_width = _widest([*(line.work for line in lines), *(f.due for f in graph.families)], LEAST_WORK)
    dlx = work + work_width + GAP + 2 * BUS
    dlx_width = _widest((line.dlx for line in lines), LEAST)
    dlq = dlx + dlx_width + GAP
    dlq_width = _widest((line.dlq for line in lines), LEAST)
    ladder = work + work_width + GAP / 2
    bus = max([dlq + dlq_width, *(ladder + ladder_width(family) for family in graph.families)]) + 2 * BUS
    end_width = _widest([graph.unrouted, graph.catch_all], LEAST)
    return Columns(work, work_width, ladder, dlx, dlx_width, dlq, dlq_width, bus, bus + 2 * BUS, end_width)


def note_lines(node: Node) -> list[str]:
    """Two notes a line."""
    return [", ".join(node.notes[at : at + 2]) for at in range(0, len(node.notes), 2)]


def step_width(family: Family) -> float:
    return max(48.0, *(name_width(delay_of(step)) + 14 for step in family.steps))


def ladder_width(family: Family) -> float:
    return max(LEAST_LADDER, len(family.steps) * (step_width(family) + STEP_GAP) + STEP_GAP)


def _widest(nodes: Iterable[Node], least: float) -> float:
    return max([least, *(min(_needed(node), WIDEST) for node in nodes)])


def _needed(node: Node) -> float:
    return max([name_width(node.name) * 1.05, *map(note_width, note_lines(node))]) + 34
