"""What is wrong with the topology on the broker, looked at beside the requests: none waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from api.broker_view import BrokerView, BrokerViewError, QueueCounts
from topology.entities import compile_topology
from topology.missing_ways import missing_ways
from topology.policy_harm import told
from topology.spec import Topology
from topology.stuck import Stuck

# As often as the broker counts.
LOOK_S = 5.0
# Exchanges and bindings take the broker long to list where there are many: this share of the time at most.
WAYS_SHARE = 0.02
# Of one kind of trouble; with none of the queues declared there would be a hundred.
MOST_NAMES = 20


@dataclass(frozen=True)
class Trouble:
    """Jobs are accepted all the same. `name`: a queue, an exchange, a binding, `broker`, `management API` or
    `relay`."""

    name: str
    trouble: str

    def as_json(self) -> dict[str, str]:
        return {"name": self.name, "trouble": self.trouble}


class BrokerWatch:
    """What the looks found. `stuck`: letters that the broker cannot hand on, or None when it did not say."""

    def __init__(self, view: BrokerView, topology: Topology, time_scale: float = 1.0) -> None:
        self._view = view
        self._topology = topology
        self._entities = compile_topology(topology, time_scale)
        self._ways: tuple[Trouble, ...] = ()
        self._ways_due = 0.0
        self._held = Stuck()
        self.stuck: int | None = None
        self.troubles: tuple[Trouble, ...] = ()

    async def look(self) -> None:
        """Ask the broker's management API, for two seconds at most."""
        try:
            queues = await self._view.queues()
            await self._look_at_ways(queues.keys())
        except BrokerViewError as error:
            self.stuck, self.troubles = None, (Trouble("management API", str(error)),)
            return
        wanted = [queue.name for queue in self._entities.queues]
        missing = [Trouble(name, "the queue is missing") for name in wanted if name not in queues]
        held = self._held.look({name: counts.stuck for name, counts in queues.items()}, time.monotonic())
        stuck = [
            Trouble(name, f"{count} dead letters or retries cannot leave the queue")
            for name, count in sorted(held.items())
        ]
        harmed = await asyncio.to_thread(self._harmed, queues)
        self.stuck = sum(held.values())
        self.troubles = (
            *_first([*missing, *self._ways], "are missing"),
            *_first(harmed, "by policies"),
            *_first(stuck, "cannot let go"),
        )

    def _harmed(self, queues: Mapping[str, QueueCounts]) -> list[Trouble]:
        """Queues of ours that a policy makes lose messages, or hold them up."""
        in_force = {name: counts.in_force for name, counts in queues.items()}
        return [Trouble(*each) for each in told(self._topology, self._entities, in_force)]

    async def _look_at_ways(self, queues: Collection[str]) -> None:
        clock = asyncio.get_running_loop().time
        if (began := clock()) < self._ways_due:
            return
        ways = await self._view.ways()
        found = await asyncio.to_thread(
            lambda: [*missing_ways(self._entities, queues, ways.exchanges, ways.bindings)]
        )
        self._ways = tuple(Trouble(way.name, f"the {way.kind} is missing") for way in found)
        self._ways_due = clock() + (clock() - began) / WAYS_SHARE

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)


def _first(found: Sequence[Trouble], words: str) -> list[Trouble]:
    more = len(found) - MOST_NAMES
    return [*found[:MOST_NAMES], *([Trouble("topology", f"{more} more {words}")] if more > 0 else [])]
