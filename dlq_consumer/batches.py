"""Deliveries gathered into batches, in their order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from topology.channel import Delivery

# Bounds what one transaction holds in memory, whatever the size of a letter.
BATCH_BYTES = 8 * 1024 * 1024
# To be woken by each letter that comes took a fifth of the time that a letter takes.
GATHER_S = 0.005


@dataclass(frozen=True)
class BatchLimits:
    """A batch ends with `letters` letters, or `wait_s` seconds after its first, whichever comes first."""

    letters: int
    wait_s: float


async def collect(deliveries: asyncio.Queue[Delivery], limits: BatchLimits) -> list[Delivery]:
    """The next batch; waits for its first letter as long as it takes."""
    batch = [await deliveries.get()]
    size = size_of(batch[0])
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limits.wait_s
    while len(batch) < limits.letters and size < BATCH_BYTES:
        try:
            delivery = deliveries.get_nowait()
        except asyncio.QueueEmpty:
            left_s = deadline - loop.time()
            if left_s <= 0:
                break
            await asyncio.sleep(min(left_s, GATHER_S))
            continue
        batch.append(delivery)
        size += size_of(delivery)
    return batch


def size_of(delivery: Delivery) -> int:
    """Bytes of body and properties."""
    return len(delivery.body) + len(delivery.properties)
