"""Consuming with a prefetch window per queue, and with care after each (re)connect."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import kombu
from amqp.exceptions import NotFound
from celery.app.amqp import AMQP
from celery.exceptions import WorkerShutdown

from workers.parsing import GuardedMessage
from workers.transport import RedriveConnection

logger = logging.getLogger(__name__)


class WorkConsumer(kombu.Consumer):
    """Celery's task consumer.

    After a (re)connect each queue is consumed with a window of one message, so that poison that takes the
    connection or this process down is alone in it and no other message counts a delivery. What went down
    with it before is delivered first, again: the window stays until a message that comes for the first
    time runs or has been settled, or as many as a full window have been settled.
    """

    windows: Mapping[str, int] = {}
    cautious = True
    paused = False

    def __init__(self, channel: Any, *args: Any, **kwargs: Any) -> None:
        self._queue_names: dict[str, str] = {}
        self._settled_again = 0
        super().__init__(channel, *args, **kwargs)
        self.channel.Message = GuardedMessage
        self.channel.auto_decode = False  # bytes stay bytes

    def consume(self, no_ack: bool | None = None) -> None:
        if self.paused:
            return
        for queue in self._queues.values():
            self._consume(queue, 1 if self.cautious else self.windows.get(queue.name, 1), no_ack)

    def _consume(self, queue: Any, window: int, no_ack: bool | None = None) -> None:
        # Not global: each consumer that starts after it gets this window (quorum queues know no other).
        self.channel.basic_qos(0, window, False)
        try:
            self._basic_consume(queue, no_ack=no_ack, nowait=False)
        except NotFound as error:
            if "no queue" not in str(error):
                # It is there, but its node is away, or starts: "home node … is down or inaccessible".
                raise
            logger.critical("queue %r is not on the broker; run: topology apply", queue.name)
            raise WorkerShutdown(1) from None

    def settled(self, redelivered: bool) -> None:
        """One message was settled: consume with the full windows, unless more trouble is to be expected."""
        if self.cautious:
            self._settled_again += redelivered
            full = sum(self.windows.get(queue.name, 1) for queue in self._queues.values())
            if redelivered and self._settled_again < full:
                return
            self.cautious = False
            if not self.paused:
                self._widen()

    def _widen(self) -> None:
        for queue in self._queues.values():
            window = self.windows.get(queue.name, 1)
            # What runs counts for the cancelled consumer only: with a window of one, its next would come too.
            if window > 1 and (tag := self._active_tags.pop(queue.name, None)) is not None:
                self.channel.basic_cancel(tag)
                self._consume(queue, window)

    def pause(self) -> None:
        """Take no more messages; those delivered stay unacked."""
        if not self.paused:
            self.paused = True
            self.cancel()

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self.consume()

    def queue_of(self, consumer_tag: str) -> str:
        """The queue that this consumer tag consumes, "" if none."""
        return self._queue_names.get(consumer_tag, "")

    def _add_tag(self, queue: Any, consumer_tag: str | None = None) -> str:
        tag: str = super()._add_tag(queue, consumer_tag)
        self._queue_names[tag] = queue.name  # kept after a cancel: deliveries may be on their way
        return tag


class RedriveAMQP(AMQP):
    """Celery's AMQP layer with our consumer and connections."""

    Connection = RedriveConnection
    Consumer = WorkConsumer
