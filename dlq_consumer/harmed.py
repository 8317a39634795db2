"""Watches for policies that make queues lose messages: what is lost there is never drained."""

from __future__ import annotations

import asyncio
import logging

from topology.entities import Entities, compile_topology
from topology.errors import TopologyError
from topology.management import Management
from topology.policy_harm import told
from topology.spec import Topology
from topology.verify.live import read_queues

log = logging.getLogger(__name__)
LOOK_S = 10.0
TIMEOUT_S = 2.0
ADVICE = "Run: topology verify"


def harmed_queues(
    management: Management, vhost: str, topology: Topology, entities: Entities
) -> list[tuple[str, str]]:
    """Queues of ours that a policy in force makes lose messages, or hold them up, and how; each value of it.

    Raises:
        ManagementError: no usable answer.
    """
    in_force = {name: queue.in_force for name, queue in read_queues(management, vhost).items()}
    return told(topology, entities, in_force)


class HarmWatch:
    """Says in the log what is harmed, once, and when it is no more. That the management API is away is for
    the watch for stuck letters to say."""

    def __init__(self, url: str, vhost: str, topology: Topology, time_scale: float) -> None:
        self._url = url
        self._of = vhost, topology, compile_topology(topology, time_scale)
        self._told: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Until cancelled."""
        with Management(self._url, TIMEOUT_S) as management:
            while True:
                await self.look(management)
                await asyncio.sleep(LOOK_S)

    async def look(self, management: Management) -> None:
        """Once."""
        try:
            now = {*await asyncio.to_thread(harmed_queues, management, *self._of)}
        except TopologyError:
            return
        for queue, what in sorted(now - self._told):
            log.error("%s. %s", what, ADVICE, extra={"action": "policy_harms", "queue": queue})
        for queue in sorted({queue for queue, _ in self._told} - {queue for queue, _ in now}):
            log.info("no policy harms it any more", extra={"action": "policy_mended", "queue": queue})
        self._told = now
