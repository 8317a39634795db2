"""What is wrong with the topology on the broker, looked at beside the requests: none waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from api.broker_view import BrokerView, BrokerViewError
from topology.entities import compile_topology
from topology.spec import Topology

# As often as the broker counts.
LOOK_S = 5.0
# Of one kind of trouble; with none of the queues declared there would be a hundred.
MOST_NAMES = 20


@dataclass(frozen=True)
class Trouble:
    """Jobs are accepted all the same. `name`: a queue, `broker`, `management API` or `relay`."""

    name: str
    trouble: str

    def as_json(self) -> dict[str, str]:
        return {"name": self.name, "trouble": self.trouble}


class BrokerWatch:
    """The last look. `stuck`: letters that the broker cannot hand to their dead-letter exchange, or None when
    it did not say."""

    def __init__(self, view: BrokerView, topology: Topology) -> None:
        self._view = view
        self._names = tuple(queue.name for queue in compile_topology(topology).queues)
        self.stuck: int | None = None
        self.troubles: tuple[Trouble, ...] = ()

    async def look(self) -> None:
        """Ask the broker's management API, for two seconds at most."""
        try:
            queues = await self._view.queues()
        except BrokerViewError as error:
            self.stuck, self.troubles = None, (Trouble("management API", str(error)),)
            return
        missing = [Trouble(name, "the queue is missing") for name in self._names if name not in queues]
        stuck = [
            Trouble(name, f"{counts.stuck} dead letters or retries cannot leave the queue")
            for name, counts in sorted(queues.items())
            if counts.stuck
        ]
        self.stuck = sum(counts.stuck for counts in queues.values())
        self.troubles = (*_first(missing), *_first(stuck))

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)


def _first(found: Sequence[Trouble]) -> list[Trouble]:
    more = len(found) - MOST_NAMES
    rest = [Trouble("topology", f"{more} more: {found[-1].trouble}")] if more > 0 else []
    return [*found[:MOST_NAMES], *rest]
