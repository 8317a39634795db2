"""Taking letters apart beside everything else that the loop does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from dlq_consumer.batches import size_of
from topology.channel import Delivery

T = TypeVar("T")
# Such letters are read in well under a millisecond: a thread would hold the loop up for longer, since the
# interpreter changes between the two only every 5 ms.
SMALL_BYTES = 64 * 1024
# So long the loop may wait for its turn.
TURN_S = 0.0005


async def read_in_turns(deliveries: Iterable[Delivery], read: Callable[[Delivery], T]) -> list[T]:
    """`read` of each. Large ones in a thread: those may take seconds, and heartbeats have to go on."""
    clock = asyncio.get_running_loop().time
    found, turn_over = [], clock() + TURN_S
    for delivery in deliveries:
        if is_quick(delivery):
            found.append(read(delivery))
        else:
            found.append(await asyncio.to_thread(read, delivery))
        if clock() >= turn_over:
            await asyncio.sleep(0)
            turn_over = clock() + TURN_S
    return found


def is_quick(delivery: Delivery) -> bool:
    """Small, and not compressed: 64 MiB fit into 64 KiB."""
    return size_of(delivery) <= SMALL_BYTES and b"compression" not in delivery.properties
