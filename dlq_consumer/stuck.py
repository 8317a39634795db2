"""Watches for dead letters that the broker cannot hand on: they are in no queue that is drained."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from topology.errors import TopologyError
from topology.management import Management
from topology.stuck import stuck_letters

log = logging.getLogger(__name__)
# Longer than the broker's statistics are old (5 s): what is seen twice in a row is not on its way.
LOOK_S = 10.0
TIMEOUT_S = 2.0
ADVICE = "cannot reach the dead-letter exchange. Run: topology verify"


class StuckWatch:
    """Says in the log which queues hold stuck letters; once for each change, not once for each look."""

    def __init__(self, url: str, vhost: str) -> None:
        self._url = url
        self._vhost = vhost
        self._before: Mapping[str, int] = {}
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
        stuck = {queue: count for queue, count in now.items() if queue in self._before}
        self._before = now
        for queue, count in stuck.items():
            if self._told.get(queue) != count:
                fields = {"action": "letters_stuck", "queue": queue, "letters": count}
                log.error(f"dead letters {ADVICE}", extra=fields)
        for queue in self._told.keys() - stuck.keys():
            log.info("no dead letter is stuck any more", extra={"action": "letters_moved", "queue": queue})
        self._told = stuck
