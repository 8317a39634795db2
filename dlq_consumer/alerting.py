"""Delivers alerts after the letters are committed, on its own: a slow receiver never holds the drain up."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx

from dlq_consumer.signature import DELIVERY_HEADER, SIGNATURE_HEADER, sign
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


@dataclass(frozen=True)
class Webhook:
    """Where alerts go. The URL may hold a secret of the receiver's: it is never logged."""

    url: str
    secret: str
    timeout_s: float


def retry_in_s(tries: int) -> float:
    """Seconds until the next try after `tries` failed ones: 1, 2, 4, … up to 300."""
    return min(math.ldexp(FIRST_RETRY_S, min(tries - 1, 20)), LONGEST_RETRY_S)


def render(alert: Alert, now: datetime) -> bytes:
    """The body of the POST."""
    return json.dumps(
        {
            "id": alert.id,
            "kind": alert.kind,
            "group": {
                "fingerprint": alert.fingerprint,
                "queue": alert.queue,
                "task": alert.task,
                "reason": alert.reason,
                "exception_type": alert.exception_type,
                "top_frame": alert.top_frame,
                "letters": alert.letters,
                "first_seen": alert.first_seen.isoformat(),
                "last_seen": alert.last_seen.isoformat(),
            },
            "letter_id": alert.letter_id,
            "sent_at": now.isoformat(),
        }
    ).encode()


class AlertDispatcher:
    """Sends each alert at least once: one delivered just before a crash comes again, with the same id."""

    def __init__(self, pool: Pool, webhook: Webhook) -> None:
        self._pool = pool
        self._webhook = webhook
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There is something to send: do not wait for the next poll."""
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled. Raises DatabaseAwayError."""
        async with httpx.AsyncClient(timeout=self._webhook.timeout_s, follow_redirects=False) as client:
            while True:
                self._woken.clear()
                lease_s = 2 * self._webhook.timeout_s + 30
                due = await alerts.claim_due(self._pool, limit=AT_ONCE, lease_s=lease_s)
                await asyncio.gather(*(self._deliver(client, alert) for alert in due))
                if len(due) < AT_ONCE:
                    await event_or_timeout(self._woken, POLL_S)

    async def _deliver(self, client: httpx.AsyncClient, alert: Alert) -> None:
        extra = {
            "action": "alert_delivered",
            "alert": alert.id,
            "kind": alert.kind,
            "group": alert.fingerprint,
        }
        body = render(alert, datetime.now(UTC))
        headers = {
            "content-type": "application/json",
            "user-agent": "redrive",
            SIGNATURE_HEADER: sign(self._webhook.secret, body, at=int(time.time())),
            DELIVERY_HEADER: alert.id,
        }
        try:
            # The client's timeout is per read; a receiver that trickles must end too.
            async with asyncio.timeout(2 * self._webhook.timeout_s):
                answer = await client.post(self._webhook.url, content=body, headers=headers)
            problem = None if answer.is_success else f"the receiver answered {answer.status_code}"
        except (httpx.HTTPError, TimeoutError) as error:
            problem = f"{type(error).__name__}: {error}".replace(self._webhook.url, "<url>")
        if problem is None:
            await alerts.delivered(self._pool, alert.id)
            log.info("alert delivered", extra=extra)
            return
        give_up = alert.tries >= MOST_TRIES
        wait_s = retry_in_s(alert.tries)
        await alerts.failed(self._pool, alert.id, safe_text(problem, 500), retry_in_s=wait_s, give_up=give_up)
        log.log(
            logging.ERROR if give_up else logging.WARNING,
            "alert not delivered: %s",
            problem,
            extra=extra | {"action": "alert_failed", "tries": alert.tries, "retry_in_s": wait_s},
        )
