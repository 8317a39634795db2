"""One family of the SVG: its work queues with their dead letters, and under them the ladder as a loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from topology.graph.columns import BUS, GAP, STEP_GAP, Columns, ladder_width, note_lines, step_width
from topology.graph.model import Family, Line, delay_of
from topology.graph.palette import FRAME, QUIET
from topology.graph.shapes import NOTE_PX, Box, box, frame, line, note_width, shortened, text

NODE_HEIGHT, STEP_HEIGHT = 46.0, 34.0
NOTE_LINE = 17.0
BETWEEN_WORKS = 38.0  # room for the line of what is unrouted
LANES = 62.0  # between the last work queue and the ladder
LADDER_HEIGHT = 98.0


@dataclass
class Drawn:
    """The sheet that is drawn on: lines lie under boxes, and words on top.

    `exits`: the heights at which lines arrive at the bus. `bottom`: where it ends.
    """

    bottom: float
    lines: list[str]
    boxes: list[str]
    words: list[str]
    exits: list[float]


def draw(family: Family, c: Columns, top: float) -> Drawn:
    works = list(_works(family, c, top))
    ladder_top = works[-1].y + works[-1].height + LANES
    middle = ladder_top + STEP_GAP + STEP_HEIGHT / 2
    due = Box(family.due, c.work, middle - NODE_HEIGHT / 2, c.work_width, NODE_HEIGHT)
    steps = _steps(family, c, middle)
    bottom = ladder_top + LADDER_HEIGHT + 14
    drawn = Drawn(bottom, [], [box(due)], [], [])
    for each, work in zip(family.lines, works, strict=True):
        _dead_letters(drawn, each, work, c)
    _ladder(drawn, family, steps, due, c, ladder_top)
    _loop(drawn, works, due, steps[0], ladder_top - 20)
    below = due.bottom(0.28)
    drawn.lines.append(line("unrouted", [below, (below[0], bottom), (c.bus, bottom)], arrow=False))
    drawn.exits.append(bottom)
    return drawn


def _works(family: Family, c: Columns, top: float) -> Iterator[Box]:
    for each in family.lines:
        height = NODE_HEIGHT + NOTE_LINE * max(len(note_lines(each.work)) - 1, 0)
        yield Box(each.work, c.work, top, c.work_width, height)
        top += height + BETWEEN_WORKS


def _steps(family: Family, c: Columns, middle: float) -> list[Box]:
    """In the family's order, the longest first; drawn from the right."""
    width, count = step_width(family), len(family.steps)
    return [
        Box(
            step,
            c.ladder + STEP_GAP + place * (width + STEP_GAP),
            middle - STEP_HEIGHT / 2,
            width,
            STEP_HEIGHT,
        )
        for step, place in zip(family.steps, range(count - 1, -1, -1), strict=True)
    ]


def _dead_letters(drawn: Drawn, each: Line, work: Box, c: Columns) -> None:
    y = work.y + (work.height - NODE_HEIGHT) / 2
    dlx = Box(each.dlx, c.dlx, y, c.dlx_width, NODE_HEIGHT)
    dlq = Box(each.dlq, c.dlq, y, c.dlq_width, NODE_HEIGHT)
    lane = y + NODE_HEIGHT + 14
    drawn.lines += [
        line("dies", [work.right, dlx.left]),
        line("kept", [dlx.right, dlq.left]),
        line("unrouted", [dlx.bottom(), (dlx.bottom()[0], lane), (c.bus, lane)], arrow=False),
    ]
    drawn.boxes += [box(work, notes=note_lines(work.node)), box(dlx), box(dlq)]
    middle = (work.right[0] + dlx.left[0] + BUS) / 2 - 4
    said = [", ".join(each.ways[:2]) + ("," if each.ways[2:] else ""), *each.ways[2:]]
    for number, words in enumerate(said):
        at = work.right[1] - 7 - 15 * (len(said) - 1 - number)
        drawn.words.append(_word(middle, at, words, anchor="middle"))
    key = shortened(f"key {each.key}", GAP - BUS)
    drawn.words.append(_word((dlx.right[0] + dlq.left[0]) / 2 - 4, dlx.right[1] - 7, key, anchor="middle"))
    drawn.exits.append(lane)


def _ladder(drawn: Drawn, family: Family, steps: list[Box], due: Box, c: Columns, top: float) -> None:
    width = ladder_width(family)
    drawn.boxes += [box(step, label=delay_of(step.node)) for step in steps]
    drawn.lines.append(frame(c.ladder, top, width, LADDER_HEIGHT, FRAME, "#ffffff"))
    drawn.lines += [line("waits", [before.left, after.right]) for before, after in pairwise(steps)]
    drawn.lines.append(line("waits", [steps[-1].left, due.right]))
    for number, words in enumerate(_explained(family, width - 2 * STEP_GAP)):
        at = steps[0].y + STEP_HEIGHT + 20 + NOTE_LINE * number
        drawn.words.append(text(c.ladder + STEP_GAP, at, words, px=NOTE_PX, fill=QUIET))
    leave = top + LADDER_HEIGHT - STEP_GAP
    drawn.lines.append(line("unrouted", [(c.ladder + width, leave), (c.bus, leave)], arrow=False))
    drawn.exits.append(leave)


def _explained(family: Family, width: float) -> Iterator[str]:
    shared = f" (shared with {family.others} more)" if family.others else ""
    begin = f"{shortened(family.ladder, width / 2)}.retry.*{shared}"
    said = f"{begin}: each an exchange and a queue with this TTL"
    yield said if note_width(said) <= width else begin
    if len(family.steps) >= 4:
        passed = [delay_of(family.steps[-place]) for place in (4, 3, 1)]
        example = f"A delay is a sum of steps, say {' + '.join(passed)}; the others let it pass."
        if note_width(example) <= width:
            yield example


def _loop(drawn: Drawn, works: list[Box], due: Box, top_step: Box, lane: float) -> None:
    """Retries leave the work queues for the longest step; what is due comes back from below."""
    *upper, last = works
    enter, start, back = top_step.top(), last.bottom(0.72), due.x - BUS
    out = last.x + last.width + BUS
    drawn.lines += [
        line("retried", [start, (start[0], lane), (enter[0], lane), enter]),
        line("due", [due.top(0.28), last.bottom(0.28)]),
    ]
    for work in upper:
        away = work.y + work.height - 8
        drawn.lines += [
            line("due", [due.left, (back, due.left[1]), (back, work.left[1]), work.left]),
            line("retried", [(work.x + work.width, away), (out, away), (out, lane)], arrow=False),
        ]
    at = out + 10 if upper else start[0] + 14
    drawn.words.append(_word(at, lane - 6, "retry: published by the worker"))
    drawn.words.append(_word(due.top(0.28)[0] + 9, lane + 10, "due again"))


def _word(x: float, y: float, words: str, anchor: str = "start") -> str:
    return text(x, y, words, px=NOTE_PX, anchor=anchor, halo=True)
