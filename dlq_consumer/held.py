"""How much the process holds in memory of what it has not settled: one bound for all queues together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol

from dlq_consumer.batches import BatchLimits, collect, size_of
from topology.channel import Delivery

# Of the whole bound: so that one queue of large letters does not stop the others at once.
QUEUE_SHARE = 4
# Letters that a queue's first window takes in, before their sizes are known.
FIRST_WINDOW = 50
# The largest letter seen counts less and less over so many others.
FORGOTTEN_AFTER = 1_000


class Readable(Protocol):
    """What letters come in through."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Held:
    """Bytes of letters in hand. Above `most` nothing more is read from the broker until some are settled.

    The letter that crosses the bound is still taken: one alone may be larger than the bound.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0
        self._links: Sequence[Readable] = ()
        self._paused = False

    @property
    def paused(self) -> bool:
        """Nothing is read from the broker."""
        return self._paused

    def through(self, links: Collection[Readable]) -> None:
        """What is to be paused."""
        self._links = tuple(links)

    def add(self, size: int) -> None:
        self.bytes += size
        if self.bytes > self.most:
            self._paused = True
            for link in self._links:  # each time: one may have connected anew
                link.pause()

    def release(self, size: int) -> None:
        self.bytes -= size
        if self._paused and self.bytes <= self.most:
            self._paused = False
            for link in self._links:
                link.resume()


class Inbox:
    """The letters of one session that are delivered and not settled: `letters` of the `taken` so far."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        self._bytes = 0
        self._open = True
        self.letters = 0
        self.taken = 0

    def put(self, delivery: Delivery) -> None:
        """Takes none after `close`: such a letter goes back with its channel."""
        if self._open:
            self.letters += 1
            self.taken += 1
            self._bytes += size_of(delivery)
            self._held.add(size_of(delivery))
            self._deliveries.put_nowait(delivery)

    async def batch(self, limits: BatchLimits) -> list[Delivery]:
        return await collect(self._deliveries, limits)

    def settled(self, batch: Sequence[Delivery]) -> None:
        """They are acked, or left to go back: no longer in hand."""
        size = sum(map(size_of, batch))
        self.letters -= len(batch)
        self._bytes -= size
        self._held.release(size)

    def close(self) -> None:
        """Before the channel is closed: its answer has to be read."""
        self._open = False
        self._held.release(self._bytes)
        self._bytes = 0


class Window:
    """How many letters of one queue the broker may hand over unsettled: many small ones, few large ones.

    Args:
        most: letters.
        most_bytes: what they may come to, going by the largest seen lately.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self.size = min(FIRST_WINDOW, most)
        self._most = most
        self._most_bytes = most_bytes
        self._largest = 1.0

    def seen(self, batch: Sequence[Delivery]) -> None:
        """Take note of their sizes. `size` only changes by half or more, or to the most: each change is a
        consumer started anew."""
        remembered = self._largest * max(0.0, 1 - len(batch) / FORGOTTEN_AFTER)
        self._largest = max(1.0, remembered, *map(size_of, batch))
        wanted = max(1, min(self._most, int(self._most_bytes / self._largest)))
        slightly_more = self.size < wanted < min(2 * self.size, self._most)
        slightly_less = self.size / 2 < wanted <= self.size
        if not slightly_more and not slightly_less:
            self.size = wanted
