"""Windows follow the letters' sizes; above the bound nothing is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dlq_consumer.held import FIRST_WINDOW, Held, Inbox, Window
from topology.channel import Delivery

MIB = 1024 * 1024


def letters(*sizes: int) -> list[Delivery]:
    return [Delivery(1, False, "", "q", "c", b"", bytes(size)) for size in sizes]


@pytest.mark.parametrize(
    ("batches", "window"),
    [
        ([[100] * 50], 500),
        ([[64 * 1024] * 50], 256),
        ([[16 * MIB]], 1),
        ([[20 * MIB]], 1),
        ([[16 * MIB], [100] * 50], 1),  # one large letter makes the next ones likely
        ([[16 * MIB], *[[100] * 250] * 40], 500),  # and is forgotten in time
        ([[300_000] * 50], FIRST_WINDOW),  # 55 would fit: not worth a new consumer
    ],
)
def test_the_window_follows_the_largest_letter_seen_lately(
    batches: Sequence[Sequence[int]], window: int
) -> None:
    seen = Window(500, 16 * MIB)
    for batch in batches:
        seen.seen(letters(*batch))
    assert seen.size == window


def test_a_window_is_never_above_the_setting() -> None:
    assert Window(20, MIB).size == 20


class Link:
    def __init__(self) -> None:
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


async def a_bound() -> None:
    held, links = Held(10), [Link(), Link()]
    held.through(links)
    one, other = Inbox(held), Inbox(held)
    one.put(letters(6)[0])
    assert not links[0].paused
    other.put(letters(6)[0])
    assert links[0].paused
    assert links[1].paused
    one.settled(letters(6))
    assert not links[0].paused
    one.put(letters(9)[0])
    assert links[1].paused
    one.close()
    one.put(letters(90)[0])
    assert not links[1].paused
    assert held.bytes == 6


def test_above_the_bound_nothing_is_read_from_any_connection() -> None:
    asyncio.run(a_bound())
