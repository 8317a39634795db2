"""Finds a consumer that the broker believes to be served and that hears nothing, and has it start anew.

RabbitMQ 3.10.8: a queue that is deleted and declared again within a second keeps its consumers, and what it
delivers to them is dropped on the way. Its letters are unsettled for ever; 4.3 cancels the consumer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from dlq_consumer.held import Held, Inbox
from topology.consumers import unsettled_counts
from topology.errors import TopologyError
from topology.management import Management
from topology.watched import Place

log = logging.getLogger(__name__)
# Longer than the broker's statistics are old (5 s): what is missing twice in a row is not on its way.
LOOK_S = 10.0
TIMEOUT_S = 2.0


class Hearing:
    """Of one drain. `deaf` is done, with a reason, once its session is to end."""

    def __init__(self, held: Held) -> None:
        self._held = held
        self._inbox: Inbox | None = None
        self._before: tuple[int, int] | None = None
        self._in_vain = 0
        self.deaf: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def begins(self, inbox: Inbox) -> None:
        """A session, in which letters come into this inbox."""
        self._inbox, self._before = inbox, None
        self.deaf = asyncio.get_running_loop().create_future()

    @property
    def listens(self) -> bool:
        """Whether a session is under way."""
        return self._inbox is not None

    def ends(self) -> None:
        self._inbox = None

    def told(self, unsettled: int) -> None:
        """How many letters the broker says its consumers have, a look after the last one.

        Someone else may have them: for one number a session ends once.
        """
        inbox, before = self._inbox, self._before
        if inbox is None or inbox.letters or self._held.paused or not unsettled:
            self._before = None
            return
        self._before = (inbox.taken, unsettled)
        if inbox.taken:
            self._in_vain = 0
        if before == self._before and unsettled != self._in_vain and not self.deaf.done():
            self._in_vain = unsettled
            self.deaf.set_result(f"{unsettled} letters were delivered to nobody that has them")


class HearingWatch:
    """Compares what the broker says with what came."""

    def __init__(self, url: str, hearings: Mapping[Place, Hearing]) -> None:
        self._url = url
        self._hearings = hearings

    async def run(self) -> None:
        """Until cancelled."""
        with Management(self._url, TIMEOUT_S) as management:
            while True:
                await asyncio.sleep(LOOK_S)
                for vhost in dict.fromkeys(place.vhost for place in self._hearings):
                    await self._look(management, vhost)

    async def _look(self, management: Management, vhost: str) -> None:
        try:
            counts = await asyncio.to_thread(unsettled_counts, management, vhost)
        except TopologyError as error:  # the watch for stuck letters says it
            log.debug("what is unsettled cannot be asked: %s", error)
            return
        for place, hearing in self._hearings.items():
            if place.vhost == vhost:
                hearing.told(counts.get(place.queue, 0))
