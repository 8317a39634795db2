"""Replayed messages that are no jobs: whether they were consumed, which leaves a trace nowhere."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping

from storage import replay_outcomes
from storage.pool import Pool
from topology.emptiness import STALE_S, empty_queues, where_it_may_wait
from topology.errors import TopologyError
from topology.management import Management
from topology.spec import Topology

log = logging.getLogger(__name__)
LOOK_S = 2.5
# With many letters a look takes long: then the database rests for so many times that.
REST = 10
TIMEOUT_S = 2.0
# Counts from before the message was there must not be taken for later ones.
SETTLED_S = 2 * STALE_S


class Quiet:
    """Since when each queue, and all where its messages may be, have been empty at every look."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def look(
        self, places: Mapping[str, Collection[str]], empty: Collection[str], now: float
    ) -> dict[str, float]:
        """Seconds, by queue.

        Args:
            places: of each queue, where else its messages may be. What is not named here is forgotten.
            empty: the queues that are empty at `now` (monotonic seconds).
        """
        quiet = {queue for queue, others in places.items() if {queue, *others} <= set(empty)}
        self._since = {queue: self._since.get(queue, now) for queue in quiet}
        return {queue: now - since for queue, since in self._since.items()}


class ConsumedWatch:
    """Any number of processes may look: what one writes down is the same for all."""

    def __init__(
        self, pool: Pool, management_url: str, vhost: str, topology: Topology, *, quiet_s: float
    ) -> None:
        """Args:
        quiet_s: a queue that was seen empty for so long, and its dead-letter queue with it, has had consumed
            what was sent to it before.
        """
        self._pool = pool
        self._management_url = management_url
        self._vhost = vhost
        self._topology = topology
        self._work_queues = [queue.name for queue in topology.queues]
        self._quiet_s = quiet_s
        self._quiet = Quiet()
        self._deaf = False

    async def run(self) -> None:
        """Until cancelled. Raises DatabaseAwayError."""
        self._quiet = Quiet()
        clock = asyncio.get_running_loop().time
        with Management(self._management_url, TIMEOUT_S) as management:
            while True:
                start = clock()
                await self._look(management)
                await asyncio.sleep(max(LOOK_S, REST * (clock() - start)))

    async def _look(self, management: Management) -> None:
        waiting = await replay_outcomes.traceless(self._pool, self._work_queues)
        if not waiting:
            self._quiet = Quiet()
            return
        try:
            empty = await asyncio.to_thread(empty_queues, management, self._vhost)
        except TopologyError as error:
            if not self._deaf:
                log.warning(
                    "whether replayed messages were consumed cannot be asked: %s",
                    error,
                    extra={"action": "management_lost", "vhost": self._vhost},
                )
            self._deaf = True
            self._quiet = Quiet()
            return
        self._deaf = False
        places = {
            queue: (*dlqs, *where_it_may_wait(self._topology, queue)) for queue, dlqs in waiting.items()
        }
        for queue, quiet_s in self._quiet.look(places, empty, time.monotonic()).items():
            if quiet_s >= self._quiet_s:
                count = await replay_outcomes.consumed(
                    self._pool, queue, self._work_queues, older_s=self._quiet_s + SETTLED_S
                )
                if count:
                    log.info(
                        "replayed messages were consumed",
                        extra={"action": "replays_consumed", "queue": queue, "letters": count},
                    )
