"""Sending messages on: round the ladder, or to their next attempt. Confirmed before anything is acked."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from uuid import UUID, uuid4

from topology.backoff import Backoff
from topology.broker_errors import NotPublishable
from topology.errors import TopologyError
from topology.ladder import route
from topology.messages import Message
from topology.publisher import Publisher
from topology.spec import WorkQueue
from workers.arrival import Arrival

logger = logging.getLogger(__name__)
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 15.0
# Said again after so long while messages cannot go out, doubled each time, whatever their number.
FIRST_QUIET_S = 15.0
LONGEST_QUIET_S = 300.0

Build = Callable[[str, int | None], Message]  # (token, due_ms) -> message


class StaleArrivalError(TopologyError):
    """The connection that delivered the message is gone: the broker delivers it again, to be judged then."""


class UnsendableError(TopologyError):
    """The next message of this arrival cannot be made; it would fail again."""


class Returns:
    """Publishes to the ladder until the broker has confirmed it.

    Args:
        time_scale: real time per nominal delay.
        current: whether an arrival's connection still lives; asked between two tries.
        held_back: told that a message cannot go out yet, so that it does not stop those behind it.
    """

    def __init__(
        self,
        publisher: Publisher,
        time_scale: float,
        current: Callable[[Arrival], bool],
        held_back: Callable[[], None],
    ) -> None:
        self._publisher = publisher
        self._time_scale = time_scale
        self.current = current
        self._held_back = held_back
        self._trouble = _Trouble()

    async def tell(self, queue: str, message: Message, token: str) -> None:
        """Publish once, to a work queue.

        Raises:
            TopologyError: it may not have arrived.
        """
        await self._publisher.publish("", queue, message, token)

    async def send(self, arrival: Arrival, queue: WorkQueue, delay_s: float, build: Build) -> None:
        """Publish so that the message is in `queue` after `delay_s` nominal seconds; try until confirmed.

        Raises:
            NotPublishable, UnsendableError: this message cannot be published, ever.
            StaleArrivalError: it need not be any more.
        """
        due = time.monotonic() + delay_s * self._time_scale
        backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        try:
            while True:
                left_s = max(due - time.monotonic(), 0.0) / self._time_scale
                token = str(uuid4())
                try:
                    way = route(queue, left_s, time_scale=self._time_scale, now_ms=int(time.time() * 1000))
                    message = build(token, way.due_ms)
                except Exception as error:
                    # Built from what others wrote: whatever is wrong with it ends this message alone.
                    raise UnsendableError(f"{type(error).__name__}: {error}") from error
                try:
                    await self._publisher.publish(way.exchange, way.routing_key, message, token)
                except NotPublishable:
                    raise
                except TopologyError as error:
                    self._trouble.met(arrival, error)
                    self._held_back()
                else:
                    self._trouble.over(arrival)
                    return
                await asyncio.sleep(backoff.next_s())
                if not self.current(arrival):
                    raise StaleArrivalError("the connection that delivered this message is gone")
        finally:
            self._trouble.stuck.discard(arrival.token)


class _Trouble:
    """Says that messages cannot go out: each kind of error at once, then ever more rarely."""

    def __init__(self) -> None:
        self.stuck: set[UUID] = set()
        self._kinds: set[type[TopologyError]] = set()
        self._quiet_s, self._quiet_until = FIRST_QUIET_S, 0.0

    def met(self, arrival: Arrival, error: TopologyError) -> None:
        self.stuck.add(arrival.token)
        now = time.monotonic()
        if type(error) in self._kinds and now < self._quiet_until:
            return
        self._kinds.add(type(error))
        self._quiet_until = now + self._quiet_s
        self._quiet_s = min(self._quiet_s * 2, LONGEST_QUIET_S)
        logger.warning(
            "not sent to the ladder, tried again until it is: %s", error,
            extra=arrival.log_fields("ladder_publish_failed") | {"waiting": len(self.stuck)},
        )  # fmt: skip

    def over(self, arrival: Arrival) -> None:
        """It is sent."""
        if self.stuck == {arrival.token}:
            self._kinds.clear()
            self._quiet_s = FIRST_QUIET_S
            logger.info("messages go to the ladder again", extra={"action": "ladder_publish_resumed"})
