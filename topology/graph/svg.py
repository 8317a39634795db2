"""The graph as an SVG with a layout of its own: no other program is needed to draw it.

From left to right: work queues, what dead letters pass, and the catch-all. Under its work queues a ladder,
from its end at the left to its longest step at the right, where a retry enters: round and back in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from topology.graph import family, legend
from topology.graph.columns import BUS, MARGIN, Columns, columns_of
from topology.graph.family import NODE_HEIGHT
from topology.graph.model import Graph
from topology.graph.palette import FRAME, PAPER, QUIET
from topology.graph.shapes import NOTE_PX, Box, arrowheads, box, line, shortened, text

HEAD = 64.0
BETWEEN_FAMILIES = 44.0
TITLE_PX = 17.0
_SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
_MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_DESCRIPTION = (
    "Each work queue with its dead-letter exchange and queue, its retry ladder, "
    "and the catch-all for what no binding takes."
)


def svg(graph: Graph, title: str) -> str:
    """A whole document. `title` is drawn above the picture, and read aloud."""
    columns = columns_of(graph)
    drawn, bottom = [], HEAD
    for each in graph.families:
        drawn.append(family.draw(each, columns, bottom))
        bottom = drawn[-1].bottom + BETWEEN_FAMILIES
    exits = [at for each in drawn for at in each.exits]
    body = [
        *(piece for each in drawn for piece in each.lines),
        *_catch_all(graph, columns, exits),
        *(piece for each in drawn for piece in each.boxes),
        *(piece for each in drawn for piece in each.words),
        legend.legend(MARGIN, bottom),
    ]
    width = max(columns.width, legend.WIDTH + 2 * MARGIN)
    height = bottom + legend.HEIGHT + MARGIN
    shown = shortened(title, (width - 2 * MARGIN) * 0.7)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(_DESCRIPTION)}</desc>',
        f"<style>text{{font-family:{_SANS}}}text.m{{font-family:{_MONO}}}</style>",
        f"<defs>{arrowheads()}</defs>",
        f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="10" fill="{PAPER}" '
        f'stroke="{FRAME}"/>',
        text(MARGIN, 36, shown, px=TITLE_PX, bold=True),
    ]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def _catch_all(graph: Graph, c: Columns, exits: list[float]) -> Iterator[str]:
    top, bottom = min(exits), max(exits)
    middle = max((top + bottom) / 2, HEAD + NODE_HEIGHT + BUS)
    unrouted = Box(graph.unrouted, c.end, middle - NODE_HEIGHT - 16, c.end_width, NODE_HEIGHT)
    kept = Box(graph.catch_all, c.end, middle + 22, c.end_width, NODE_HEIGHT)
    y = unrouted.left[1]
    yield line("unrouted", [(c.bus, min(top, y)), (c.bus, max(bottom, y))], arrow=False)
    yield line("unrouted", [(c.bus, y), unrouted.left])
    yield line("unrouted", [unrouted.bottom(), kept.top()])
    yield box(unrouted)
    yield box(kept)
    below = kept.bottom()
    yield text(below[0], below[1] + 18, "what no binding takes", px=NOTE_PX, fill=QUIET, anchor="middle")
