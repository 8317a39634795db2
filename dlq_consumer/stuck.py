"""Watches for dead letters that the broker cannot hand on: they are in no queue that is drained."""

from __future__ import annotations

import asyncio
import logging
import time

from topology.errors import TopologyError
from topology.management import Management
from topology.stuck import Stuck, stuck_letters

log = logging.getLogger(__name__)
# As often as the broker counts.
LOOK_S = 5.0
TIMEOUT_S = 2.0
ADVICE = "cannot reach the dead-letter exchange. Run: topology verify"


class StuckWatch:
    """Says in the log which queues hold stuck letters; once for each change, not once for each look."""

    def __init__(self, url: str, vhost: str) -> None:
        self._url = url
        self._vhost = vhost
        self._stuck = Stuck()
        self._told: dict[str, int] = {}
        self._deaf = False

    async def run(self) -> None:
        """Until cancelled."""
        with Management(self._url, TIMEOUT_S) as management:
            while True:
                await self._look(management)
                await asyncio.sleep(LOOK_S)

    async def _look(self, management: Management) -> None:
        try:
            now = await asyncio.to_thread(stuck_letters, management, self._vhost)
        except TopologyError as error:
            if not self._deaf:
                log.warning("stuck letters cannot be seen: %s", error, extra={"action": "management_lost"})
            self._deaf = True
            return
        self._deaf = False
        stuck = self._stuck.look(now, time.monotonic())
        for queue, count in stuck.items():
            if self._told.get(queue) != count:
                fields = {"action": "letters_stuck", "queue": queue, "letters": count}
                log.error(f"dead letters {ADVICE}", extra=fields)
        for queue in self._told.keys() - stuck.keys():
            log.info("no dead letter is stuck any more", extra={"action": "letters_moved", "queue": queue})
        self._told = stuck
