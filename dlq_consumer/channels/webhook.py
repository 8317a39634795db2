"""The signed webhook."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

from dlq_consumer.alert_message import as_json
from dlq_consumer.channels.http import AlertPoster
from outbound.reach import Reach
from outbound.signature import DELIVERY_HEADER, SIGNATURE_HEADER, sign
from storage.alerts import Alert


class Webhook:
    """POSTs JSON, signed over the time and the body."""

    name = "webhook"
    takes_resolved = True

    def __init__(self, url: str, secret: str, timeout_s: float, reach: Reach) -> None:
        """Raises ValueError: see `AlertPoster`."""
        self._poster = AlertPoster(url, timeout_s, reach)
        self._secret = secret

    @property
    def longest_s(self) -> float:
        return self._poster.longest_s

    async def send(self, alert: Alert) -> None:
        body = json.dumps(as_json(alert, datetime.now(UTC))).encode()
        await self._poster.post(
            body,
            {
                "content-type": "application/json",
                "user-agent": "redrive",
                SIGNATURE_HEADER: sign([self._secret], body, at=int(time.time())),
                DELIVERY_HEADER: alert.id,
            },
        )

    async def close(self) -> None:
        await self._poster.close()
