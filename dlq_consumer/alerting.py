"""Delivers alerts after the letters are committed, each channel on its own: a slow receiver holds up
neither the drain nor another channel."""

from __future__ import annotations

import asyncio
import logging
import math

from dlq_consumer.channels.channel import Channel, DeliveryError
from dlq_consumer.figures import ConsumerFigures
from dlq_consumer.waiting import event_or_timeout
from storage import alerts
from storage.alerts import Alert
from storage.pool import Pool
from storage.text import safe_text

log = logging.getLogger(__name__)
AT_ONCE = 10
POLL_S = 1.0
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 300.0
# About a day and a half at the longest pause.
MOST_TRIES = 450


def retry_in_s(tries: int) -> float:
    """Seconds until the next try after `tries` failed ones: 1, 2, 4, … up to 300."""
    return min(math.ldexp(FIRST_RETRY_S, min(tries - 1, 20)), LONGEST_RETRY_S)


class AlertDispatcher:
    """Sends each alert to one channel, at least once: one delivered just before a crash comes again, with
    the same id.
    """

    def __init__(self, pool: Pool, channel: Channel, figures: ConsumerFigures) -> None:
        self._figures = figures
        self._pool = pool
        self._channel = channel
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There is something to send: do not wait for the next poll."""
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled. Raises DatabaseAwayError."""
        # A channel that sends one after the other needs so long for all of them.
        lease_s = AT_ONCE * self._channel.longest_s + 30
        while True:
            self._woken.clear()
            due = await alerts.claim_due(self._pool, self._channel.name, limit=AT_ONCE, lease_s=lease_s)
            await asyncio.gather(*(self._deliver(alert) for alert in due))
            if len(due) < AT_ONCE:
                await event_or_timeout(self._woken, POLL_S)

    async def _deliver(self, alert: Alert) -> None:
        extra: dict[str, object] = {
            "action": "alert_delivered",
            "alert": alert.id,
            "kind": alert.kind,
            "subject": alert.subject,
            "channel": self._channel.name,
        }
        try:
            await self._channel.send(alert)
        except DeliveryError as error:
            await self._failed(alert, str(error), extra)
        else:
            await alerts.delivered(self._pool, alert.id, self._channel.name)
            self._figures.alerted(self._channel.name, "delivered")
            log.info("alert delivered", extra=extra)

    async def _failed(self, alert: Alert, problem: str, extra: dict[str, object]) -> None:
        give_up = alert.tries >= MOST_TRIES
        wait_s = retry_in_s(alert.tries)
        self._figures.alerted(self._channel.name, "given_up" if give_up else "failed")
        await alerts.failed(
            self._pool,
            alert.id,
            self._channel.name,
            safe_text(problem, 500),
            retry_in_s=wait_s,
            give_up=give_up,
        )
        log.log(
            logging.ERROR if give_up else logging.WARNING,
            "alert not delivered: %s",
            problem,
            extra=extra | {"action": "alert_failed", "tries": alert.tries, "retry_in_s": wait_s},
        )
