"""What the dead-letter consumer tells Prometheus: what it did, and what the tables and the broker hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from storage import figures
from storage.errors import DRIVER_ERRORS, DatabaseAwayError, StorageError
from storage.pool import Pool, borrow
from topology.errors import TopologyError
from topology.prometheus.board import WITHIN_S, Board, Part
from topology.prometheus.counting import Counter
from topology.prometheus.ports import parse_ports
from topology.prometheus.queues import queue_gauges, read_queues
from topology.prometheus.serving import MetricsServer, serve
from topology.prometheus.text import Family, as_gauges, gauge, render

if TYPE_CHECKING:
    from dlq_consumer.configuration import Configuration
    from dlq_consumer.hearing import Hearing
    from dlq_consumer.intake import Result
    from dlq_consumer.sending import Sent

log = logging.getLogger(__name__)
DATABASE_S = 5.0
# Longer than the board takes: the loop is busy then.
LOOP_S = 2.0
AWAY = (StorageError, TopologyError, TimeoutError, *DRIVER_ERRORS)


class ConsumerFigures:
    """One per process; filled on its loop. `pool` is there while the database is; `drains` by queue."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.pool: Pool | None = None
        self.drains: Mapping[str, Hearing] = {}
        self._letters = Counter(
            "redrive_drained_letters_total",
            "Letters taken off a dead-letter queue: stored, again (were stored before), held (unstorable).",
            ("dlq", "result"),
        )
        self._replayed = Counter(
            "redrive_replayed_letters_total",
            "Letters that replays published, by what is known: unsent ones are tried again.",
            ("result",),
        )
        self._alerts = Counter(
            "redrive_alert_deliveries_total", "Tries to deliver alerts.", ("channel", "result")
        )
        for result in ("published", "unsent", "unknown", "failed"):
            self._replayed.start(result)
        for channel in configuration.channels:
            for result in ("delivered", "failed", "given_up"):
                self._alerts.start(channel.name, result)
        database = [Part(name, self._asking(ask)) for name, ask in figures.ASKED.items()]
        self._board = Board({"database": database, "management": [Part("queues", self._queues)]}, AWAY)
        self._server: MetricsServer | None = None

    def drained(self, dlq: str, result: Result) -> None:
        self._letters.add(dlq, "stored", number=result.stored)
        self._letters.add(dlq, "again", number=result.again)
        self._letters.add(dlq, "held", number=len(result.held))

    def replayed(self, results: Sequence[Sent]) -> None:
        for result in results:
            self._replayed.add(result.what)

    def alerted(self, channel: str, result: Literal["delivered", "failed", "given_up"]) -> None:
        self._alerts.add(channel, result)

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on, if a port is set."""
        settings = self._configuration.consumer
        ports = parse_ports(settings.metrics_port)
        self._server = serve(settings.metrics_host, ports, lambda: self._page(loop))

    async def close(self) -> None:
        await self._board.close()
        if self._server is not None:
            await asyncio.to_thread(self._server.close)  # a request may wait for this loop

    def _page(self, loop: asyncio.AbstractEventLoop) -> str:
        """Called in a thread of the server's."""
        asked = asyncio.run_coroutine_threadsafe(self._board.families(WITHIN_S), loop)
        try:
            known = asked.result(LOOP_S)
        except TimeoutError:
            asked.cancel()
            log.warning("the loop is busy: no figures of servers", extra={"action": "figures_missing"})
            known = []
        draining = (({"dlq": shown}, float(hearing.listens)) for shown, hearing in self.drains.items())
        return render(
            [
                *known,
                gauge(
                    "redrive_draining",
                    "1: this process drains the queue. 0: it waits, or stands by.",
                    draining,
                ),
                *(counter.family() for counter in (self._letters, self._replayed, self._alerts)),
            ]
        )

    def _asking(self, ask: figures.Ask) -> Callable[[], Awaitable[list[Family]]]:
        queues = [queue.name for queue in self._configuration.topology.queues]

        async def asked() -> list[Family]:
            if self.pool is None:
                raise DatabaseAwayError("Postgres is away")
            async with borrow(self.pool, DATABASE_S) as db:
                return as_gauges(await ask(db, queues))

        return asked

    async def _queues(self) -> list[Family]:
        settings = self._configuration
        home = settings.broker.address.vhost
        found = await asyncio.to_thread(read_queues, settings.management_url, home)
        also = [place.queue for place in settings.broker.watched if place.vhost == home]
        return queue_gauges(settings.topology, found, also)
