"""SVG elements as text: boxes for nodes, lines for edges, and words. Every text is escaped here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from xml.sax.saxutils import escape

from topology.graph.model import Kind, Node, Role
from topology.graph.palette import EDGES, INK, NODES, PAPER, QUIET

NAME_PX, NOTE_PX = 13, 11.5
# Widths of monospaced letters and, on average, of others, in parts of their size.
_MONO, _SANS = 0.61, 0.54
RIM = 7.0
_DRUMS = ("dlq", "catch_all")
DASHES: dict[Role, str] = {"retried": "7 4", "unrouted": "2 4"}
Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A node's place; its shape follows from its kind."""

    node: Node
    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> Point:
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> Point:
        return self.x + self.width, self.y + self.height / 2

    def top(self, share: float = 0.5) -> Point:
        return self.x + self.width * share, self.y

    def bottom(self, share: float = 0.5) -> Point:
        return self.x + self.width * share, self.y + self.height


def name_width(text: str) -> float:
    return len(text) * NAME_PX * _MONO


def note_width(text: str) -> float:
    return len(text) * NOTE_PX * _SANS


def shortened(text: str, width: float) -> str:
    """The middle goes where a name is too wide: its beginning and its suffix tell what it is."""
    letters = int(width / (NAME_PX * _MONO))
    if len(text) <= letters:
        return text
    kept = max(letters - 1, 2)
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


def box(place: Box, label: str = "", notes: Iterable[str] = ()) -> str:
    """The node with its name (or `label`) and notes in the middle; the whole name on hovering."""
    lines = list(notes)
    middle_x, middle_y = place.x + place.width / 2, place.y + place.height / 2
    lowered = RIM / 2 if place.node.kind in _DRUMS else 0
    first = middle_y - 8 * len(lines) + 4.5 + lowered
    name = label or shortened(place.node.name, place.width - 18)
    words = [text(middle_x, first, name, mono=True, anchor="middle", bold=place.node.kind == "work")]
    words += [
        text(middle_x, first + 17 * number, line, px=NOTE_PX, fill=QUIET, anchor="middle")
        for number, line in enumerate(lines, 1)
    ]
    return f"<g><title>{escape(place.node.name)}</title>{_outline(place)}{''.join(words)}</g>"


def text(
    x: float, y: float, words: str, *, px: float = NAME_PX, fill: str = INK, anchor: str = "start",
    mono: bool = False, bold: bool = False, halo: bool = False,
) -> str:  # fmt: skip
    """`halo`: readable on a line that passes behind it."""
    kind = ' class="m"' if mono else ""
    weight = ' font-weight="600"' if bold else ""
    around = f' stroke="{PAPER}" stroke-width="4" paint-order="stroke"' if halo else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{px:g}" fill="{fill}" text-anchor="{anchor}"'
        f"{kind}{weight}{around}>{escape(words)}</text>"
    )


def line(role: Role, points: Iterable[Point], *, arrow: bool = True) -> str:
    """Straight pieces with rounded corners."""
    dashes = f' stroke-dasharray="{DASHES[role]}"' if role in DASHES else ""
    width = 2.2 if role in ("dies", "due") else 1.6
    head = f' marker-end="url(#{role})"' if arrow else ""
    drawn = f'fill="none" stroke="{EDGES[role]}" stroke-width="{width:g}"{dashes}{head}'
    return f'<path d="{_path(list(points))}" {drawn}/>'


def arrowheads() -> str:
    return "".join(
        f'<marker id="{role}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 10 5 0 10Z" fill="{colour}"/></marker>'
        for role, colour in EDGES.items()
    )


def frame(x: float, y: float, width: float, height: float, stroke: str, fill: str = "none") -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"'
    return f'<rect {place} fill="{fill}" stroke="{stroke}"/>'


def _outline(place: Box) -> str:
    kind, (fill, stroke) = place.node.kind, NODES[place.node.kind]
    x, y, w, h = place.x, place.y, place.width, place.height
    drawn = f'fill="{fill}" stroke="{stroke}" stroke-width="{_width(kind):g}"'
    if kind in ("dlx", "due", "unrouted"):  # an exchange: a hexagon
        cut = min(12.0, w / 4)
        corners = [(x + cut, y), (x + w - cut, y), (x + w, y + h / 2), (x + w - cut, y + h), (x + cut, y + h),
                   (x, y + h / 2)]  # fmt: skip
        return f'<polygon points="{" ".join(f"{a:g},{b:g}" for a, b in corners)}" {drawn}/>'
    if kind in _DRUMS:  # where things are kept
        rim = RIM
        sides = f"M{x:g} {y + rim:g}v{h - 2 * rim:g}a{w / 2:g} {rim:g} 0 0 0 {w:g} 0v{-(h - 2 * rim):g}"
        return (
            f'<path d="{sides}" {drawn}/>'
            f'<ellipse cx="{x + w / 2:g}" cy="{y + rim:g}" rx="{w / 2:g}" ry="{rim:g}" {drawn}/>'
        )
    if kind == "step":  # a note with a corner turned down
        fold = 7.0
        return f'<path d="M{x:g} {y:g}h{w - fold:g}l{fold:g} {fold:g}v{h - fold:g}h{-w:g}z" {drawn}/>'
    return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="4" {drawn}/>'


def _width(kind: Kind) -> float:
    return 2.4 if kind == "work" else 1.4


def _path(points: list[Point], radius: float = 7) -> str:
    (x, y), *rest = points
    drawn = [f"M{x:g} {y:g}"]
    for (ax, ay), (bx, by), (cx, cy) in zip(points, points[1:], points[2:], strict=False):
        before, after = abs(bx - ax) + abs(by - ay), abs(cx - bx) + abs(cy - by)
        r = min(radius, before / 2, after / 2)
        if r == 0:
            continue
        px, py = bx + (ax - bx) / before * r, by + (ay - by) / before * r
        qx, qy = bx + (cx - bx) / after * r, by + (cy - by) / after * r
        drawn.append(f"L{px:g} {py:g}Q{bx:g} {by:g} {qx:g} {qy:g}")
    drawn.append(f"L{rest[-1][0]:g} {rest[-1][1]:g}")
    return "".join(drawn)
