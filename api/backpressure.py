"""How much more a work queue may take: its depth against its watermark.

Work queues have no length limit, since a full one would make its retries wait unseen inside the
broker; so what is too much waits in the outbox.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from storage.outbox import OutboxRow
from topology.broker_errors import BrokerAway, ChannelClosed
from topology.connection import BrokerConnection
from topology.errors import UnknownQueueError
from topology.migrate.gate import is_gated
from topology.spec import Topology

# A depth is asked for again after this long. In between we count what we publish ourselves; other
# publishers and relays are so noticed half a second late.
FRESH_S = 0.5
ANSWER_S = 5.0


@dataclass
class _Depth:
    room: int
    asked_at: float


class Backpressure:
    """The room in each queue, as one relay knows it."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._depths: dict[str, _Depth] = {}

    @property
    def paused(self) -> tuple[str, ...]:
        """Queues that were at or above their watermark, or being migrated, when last looked at."""
        return tuple(sorted(name for name, depth in self._depths.items() if depth.room <= 0))

    async def refresh(self, connection: BrokerConnection) -> None:
        """Look at the paused queues again, if that is due.

        Raises:
            BrokerAway: the broker gave no answer.
        """
        for queue in self.paused:
            await self._look(connection, queue)

    async def admit(self, connection: BrokerConnection, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """Those of `rows`, in their order, for which there is room.

        Raises:
            BrokerAway: the broker gave no answer.
        """
        admitted = []
        for queue in dict.fromkeys(row.queue for row in rows):
            await self._look(connection, queue)
        taken: Counter[str] = Counter()
        for row in rows:
            if taken[row.queue] < self._depths[row.queue].room:
                taken[row.queue] += 1
                admitted.append(row)
        for queue, count in taken.items():
            self._depths[queue].room -= count
        return admitted

    async def _look(self, connection: BrokerConnection, queue: str) -> None:
        now = asyncio.get_running_loop().time()
        known = self._depths.get(queue)
        if known is None or now - known.asked_at >= FRESH_S:
            self._depths[queue] = _Depth(await self._ask(connection, queue), now)

    async def _ask(self, connection: BrokerConnection, queue: str) -> int:
        try:
            async with asyncio.timeout(ANSWER_S):
                return 0 if await is_gated(connection, queue) else await self._room(connection, queue)
        except TimeoutError as error:
            raise BrokerAway(
                f"the broker did not tell the depth of {queue!r} within {ANSWER_S:g} s"
            ) from error

    async def _room(self, connection: BrokerConnection, queue: str) -> int:
        try:
            watermark = self._topology.queue(queue).watermark
        except UnknownQueueError:
            watermark = 10**9  # a queue of an earlier topology: its jobs were accepted all the same
        try:
            state = await connection.inspect(queue)
        except ChannelClosed:
            return watermark  # missing: the publish will be returned as unroutable, and the row says so
        return watermark - state.messages
