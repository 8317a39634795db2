"""A queue that `dlq consume` drains, but for the moments in which its consumer starts anew."""

from __future__ import annotations

import asyncio

from topology.channel import QueueState
from topology.connection import BrokerConnection

# A prefetch is changed by a new consumer. Before it there is none for a moment, and a quorum queue counts the
# one before with it until that one's letters are settled.
NONE_FOR_S, TWO_FOR_S = 1.0, 5.0
LOOK_S = 0.1


async def drained_state(connection: BrokerConnection, queue: str, *, alone: bool = False) -> QueueState:
    """The queue's state once it has a consumer, or after a second without one.

    Args:
        alone: until it has just one, too, for up to five seconds.

    Raises:
        ChannelClosed: the queue is missing (404).
        BrokerAway: the broker is away.
    """
    clock = asyncio.get_running_loop().time
    start = clock()
    while True:
        state = await connection.inspect(queue)
        if state.consumers == 1 or (state.consumers and not alone):
            return state
        if clock() >= start + (TWO_FOR_S if state.consumers else NONE_FOR_S):
            return state
        await asyncio.sleep(LOOK_S)
