"""Watches the retry queues of one work queue from outside, over AMQP, as fast as the broker answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from topology import names
from topology.address import AmqpAddress
from topology.declare import connection
from topology.depths import count
from topology.errors import TopologyError
from topology.spec import WorkQueue

_PAUSE_S = 0.02


@dataclass(frozen=True)
class Sighting:
    """A message was in this retry queue at this time (unix seconds)."""

    at: float
    queue: str


class LadderWatch:
    """A context manager; a thread and a connection of its own look on in between."""

    def __init__(self, amqp_url: str, queue: WorkQueue) -> None:
        self._address = AmqpAddress.parse(amqp_url)
        self._queues = [names.step(queue.name, queue.ladder, n) for n in range(queue.ladder.steps)]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, name="ladder-watch", daemon=True)
        self.sightings: list[Sighting] = []
        self.problem: TopologyError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(10)

    def _look(self) -> None:
        try:
            with connection(self._address, "redrive-demo-watch") as opened:
                channel = opened.channel()
                while not self._ended.wait(_PAUSE_S):
                    for queue in self._queues:
                        if count(channel, queue).ready:
                            self.sightings.append(Sighting(time.time(), queue))
        except TopologyError as error:
            self.problem = error


def seen_between(sightings: Iterable[Sighting], start: float, end: float) -> list[str]:
    """The queues in which something was seen in this span, in the order of first sight."""
    return list(dict.fromkeys(each.queue for each in sightings if start <= each.at <= end))
