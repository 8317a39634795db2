"""The legend under the picture: every shape and every line, in words."""

from __future__ import annotations

from topology.graph.model import Kind, Node, Role
from topology.graph.palette import QUIET
from topology.graph.shapes import Box, box, line, text

_KINDS: tuple[tuple[Kind, str], ...] = (
    ("work", "work queue"),
    ("dlx", "exchange"),
    ("dlq", "queue that keeps"),
    ("step", "retry step"),
)
_ROLES: tuple[tuple[Role, str], ...] = (
    ("dies", "dead-lettered by the broker"),
    ("retried", "published by the worker"),
    ("waits", "after the step's delay"),
    ("due", "due again"),
    ("unrouted", "alternate exchange"),
)
_COLUMN = 212.0
WIDTH, HEIGHT = _COLUMN * len(_ROLES), 58.0


def legend(x: float, y: float) -> str:
    drawn = []
    for number, (kind, words) in enumerate(_KINDS):
        left = x + number * _COLUMN
        drawn.append(box(Box(Node(words, kind), left, y, 30, 20), label=" "))
        drawn.append(text(left + 40, y + 14, words, px=11.5, fill=QUIET))
    for number, (role, words) in enumerate(_ROLES):
        left = x + number * _COLUMN
        drawn.append(line(role, [(left, y + 44), (left + 30, y + 44)]))
        drawn.append(text(left + 40, y + 48, words, px=11.5, fill=QUIET))
    return f'<g aria-label="Legend">{"".join(drawn)}</g>'
