"""Where the copies of marked messages are once nothing moves any more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.oracle.drive import (
    FILLER,
    Drive,
    Limits,
    Marked,
    Undriven,
    fillers,
    needs_solitude,
    prepare,
    release,
    release_order,
)
from tests.support.oracle.site import Site
from tests.support.waiting import eventually

SETTLES_WITHIN_S = 2.0
POLL_S = 0.01
# Beside the TTLs themselves: what a hop takes on a busy machine.
CALM_S = 0.06


@dataclass(frozen=True)
class Landing:
    """Copies by queue. A letter that its source keeps or that is gone is in none of them."""

    resting: Mapping[str, int] = field(default_factory=dict)
    refused: bool = False

    def __str__(self) -> str:
        rests = ", ".join(f"{count} in {queue!r}" for queue, count in sorted(self.resting.items()))
        return ("refused to the publisher; " if self.refused else "") + (rests or "in no queue")


def calm_s(limits: Mapping[str, Limits]) -> float:
    """Seconds without a change after which nothing is on its way: each queue's TTL twice, and some."""
    return CALM_S + 2 * sum(queue.ttl_ms or 0 for queue in limits.values()) / 1000


def play(
    site: Site,
    drives: Sequence[Drive],
    limits: Mapping[str, Limits],
    expected: Sequence[Landing] | None = None,
) -> list[Landing | Undriven]:
    """Let one message per drive leave, all at once, and see where they land; the queues are empty after it.

    `expected` only shortens the wait: as soon as the queues' depths are as expected they have to stay so
    for `calm_s`. Without it, or with other depths, the wait is the longest.
    """
    results: dict[int, Landing | Undriven] = {}
    marked: dict[int, Marked] = {}
    for index, drive in enumerate(drives):
        try:
            marked[index] = prepare(site, drive, limits)
        except Undriven as undriven:
            results[index] = undriven
    for index in sorted(marked, key=lambda index: release_order(drives[index], limits)):
        release(site, marked[index], limits)
    depths: Counter[str] | None = None
    if expected is not None and not any(fillers(drive, limits) for drive in drives):
        depths = Counter()
        for index in marked:
            depths.update(expected[index].resting)
    _settled(site, depths, calm_s(limits))
    found = _drain(site)
    for index, message in marked.items():
        resting = {queue: ids[message.id] for queue, ids in found.items() if ids[message.id]}
        results[index] = Landing(resting, message.refused)
    return [results[index] for index in range(len(drives))]


def groups(drives: Sequence[Drive], limits: Mapping[str, Limits]) -> list[list[Drive]]:
    """What may be played at once: everything of one way, or each drive alone."""
    crowds: dict[str, list[Drive]] = {}
    alone: list[list[Drive]] = []
    for drive in drives:
        if needs_solitude(drive, limits):
            alone.append([drive])
        else:
            crowds.setdefault(drive.way, []).append(drive)
    return [*crowds.values(), *alone]


def _settled(site: Site, expected: Mapping[str, int] | None, calm: float) -> None:
    """Return once the depths have been `expected` for `calm` seconds, or at the latest after a bounded time.

    A short look is enough where the depths are those expected; a surprise is looked at until the end.
    """
    began = since = time.monotonic()
    last: dict[str, int] | None = None

    def still() -> bool:
        nonlocal since, last
        now = time.monotonic()
        depths = {queue: count for queue in site.queues if (count := site.depth(queue))}
        if depths != last:
            since, last = now, depths
        # A poll may itself be slow: only a change seen late counts from when it was seen.
        as_expected = expected is not None and depths == expected
        return now - since >= (calm if as_expected else max(calm, 0.5)) or now - began > SETTLES_WITHIN_S

    eventually(still, SETTLES_WITHIN_S + 5, "a look at the depths", every_s=POLL_S)


def _drain(site: Site) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for queue in site.queues:
        ids: Counter[str] = Counter()
        while (message := site.channel.basic_get(queue, auto_ack=True))[0] is not None:
            ids[message[1].message_id] += 1
        del ids[FILLER]
        found[queue] = ids
    return found
