"""`/metrics` of the API: what the tables and the broker hold, and what its relay has done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from api.broker_view import BrokerViewError
from storage import figures
from storage.errors import DRIVER_ERRORS, StorageError
from topology.prometheus.board import Board, Part
from topology.prometheus.queues import QueueNumbers, queue_gauges
from topology.prometheus.text import Family, as_gauges, gauge, render

if TYPE_CHECKING:
    from api.runtime import Runtime

# With errors that no outage explains, such as a right that is missing: the page says that figures are.
AWAY = (StorageError, BrokerViewError, TimeoutError, *DRIVER_ERRORS)


class ApiFigures:
    """One per process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        database = [Part(name, self._asking(ask)) for name, ask in figures.ASKED.items()]
        self._board = Board({"database": database, "management": [Part("queues", self._queues)]}, AWAY)

    async def page(self) -> str:
        """In less than a second, with what is known."""
        relay = self._runtime.relay
        broker = [({"what": "broker"}, float(relay.broker == "ok"))]
        paused = (({"queue": queue}, 1.0) for queue in relay.paused)
        return render(
            [
                *await self._board.families(),
                gauge("redrive_up", "Whether this process reaches the server.", broker),
                gauge("redrive_relay_paused", "1: the queue is above its watermark.", paused),
                *relay.counts.families(),
            ]
        )

    async def close(self) -> None:
        await self._board.close()

    def _asking(self, ask: figures.Ask) -> Callable[[], Awaitable[list[Family]]]:
        queues = [queue.name for queue in self._runtime.config.topology.queues]

        async def asked() -> list[Family]:
            async with self._runtime.database() as db:
                return as_gauges(await ask(db, queues))

        return asked

    async def _queues(self) -> list[Family]:
        found = await self._runtime.broker.queues()
        numbers = {
            name: QueueNumbers(counts.ready, counts.unacknowledged, counts.stuck, counts.consumers)
            for name, counts in found.items()
        }
        return queue_gauges(self._runtime.config.topology, numbers)
