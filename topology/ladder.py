"""From a delay to a routing key on the binary ladder. Pure: no clock, no broker."""

from __future__ import annotations

import math
from dataclasses import dataclass

from topology.names import due, step
from topology.spec import Ladder, WorkQueue

# A delay is rounded up to this many significant bits, so that it takes at most as many hops and is
# at most 1/16 (6.25 %) longer than asked.
SIGNIFICANT_BITS = 5


@dataclass(frozen=True)
class Route:
    """Where to publish a message so that it comes back to its work queue after a delay."""

    exchange: str
    routing_key: str
    delay_ms: int  # nominal, of this lap
    due_ms: int | None  # unix ms, for the header DUE, where one lap is not enough


def longest_lap_ticks(ladder: Ladder) -> int:
    """The longest delay that the ladder can spell after rounding, in ticks."""
    kept = min(SIGNIFICANT_BITS, ladder.steps)
    return ((1 << kept) - 1) << (ladder.steps - kept)


def ticks_for(delay_s: float, ladder: Ladder) -> int:
    """`delay_s` in ticks, rounded up to five significant bits: never early.

    Raises:
        ValueError: the delay is negative or not a number.
    """
    if not delay_s >= 0 or math.isinf(delay_s):
        raise ValueError(f"a delay of {delay_s} s; it must be finite and not negative")
    ticks = math.ceil(round(delay_s * 1000, 6) / ladder.tick_ms)
    shift = max(ticks.bit_length() - SIGNIFICANT_BITS, 0)
    return -(-ticks >> shift) << shift


def routing_key(ticks: int, ladder: Ladder, queue: str) -> str:
    """The ladder's shape, its bits, the longest step first, then the work queue's name."""
    bits = format(ticks, f"0{ladder.steps}b")
    return ".".join((ladder.shape, *bits, queue))


def end_key(ladder: Ladder, queue: str) -> str:
    """The key that binds a queue to a ladder's end: whatever the bits, and the whole name.

    One star per bit: with "#" before the name, a key for "a.b" would reach "b" too.
    """
    return ".".join([ladder.shape, *["*"] * ladder.steps, queue])


def route(queue: WorkQueue, delay_s: float, *, time_scale: float, now_ms: int) -> Route:
    """The first exchange and the routing key for a delay of `delay_s` seconds.

    Args:
        time_scale: real time per nominal time; below 1 only in tests.
        now_ms: unix milliseconds, for the due time of a delay that takes more than one lap.
    """
    ladder = queue.ladder
    ticks, longest = ticks_for(delay_s, ladder), longest_lap_ticks(ladder)
    due_ms = None
    if ticks > longest:
        due_ms = now_ms + math.ceil(delay_s * 1000 * time_scale)
        ticks = longest
    if ticks == 0:
        return Route(due(queue.name, ladder), routing_key(0, ladder, queue.name), 0, due_ms)
    top = step(queue.name, ladder, ladder.steps - 1)
    return Route(top, routing_key(ticks, ladder, queue.name), ticks * ladder.tick_ms, due_ms)
