"""Alerts as events in Sentry, grouped as the letters are.

Without Sentry's own SDK: that drops an event which the server does not take, and tells nobody, so that no
delivery could be tried again. The envelope: https://develop.sentry.dev/sdk/data-model/envelopes/
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from dlq_consumer.alert_message import as_json, text, title
from dlq_consumer.channels.http import AlertPoster
from outbound.reach import Reach
from storage.alerts import Alert
from storage.times import shown_time


@dataclass(frozen=True)
class Dsn:
    """Where a Sentry project takes events, and the key that goes with them."""

    url: str
    key: str

    @classmethod
    def parse(cls, dsn: str) -> Dsn:
        """`https://KEY@HOST[:PORT][/PREFIX]/PROJECT`.

        Raises:
            ValueError: it is none. The message quotes nothing of it.
        """
        parts = urlsplit(dsn)
        prefix, _, project = parts.path.rpartition("/")
        if parts.scheme not in ("http", "https") or not parts.hostname or not parts.username or not project:
            raise ValueError("must look like https://KEY@HOST/PROJECT")
        host = parts.netloc.rpartition("@")[2]
        return cls(f"{parts.scheme}://{host}{prefix}/api/{project}/envelope/", parts.username)


class Sentry:
    """One event for each alert.

    The event's id is the alert's: Sentry takes it once, however often it is sent. That something is well
    again is not sent: an event of any kind would reopen the issue.
    """

    name = "sentry"
    takes_resolved = False

    def __init__(self, dsn: Dsn, timeout_s: float, reach: Reach) -> None:
        """Raises ValueError: see `AlertPoster`."""
        self._dsn = dsn
        self._poster = AlertPoster(dsn.url, timeout_s, reach)

    @property
    def longest_s(self) -> float:
        return self._poster.longest_s

    async def send(self, alert: Alert) -> None:
        key = self._dsn.key
        await self._poster.post(
            envelope(alert, datetime.now(UTC)),
            {
                "content-type": "application/x-sentry-envelope",
                "user-agent": "redrive",
                "X-Sentry-Auth": f"Sentry sentry_version=7, sentry_client=redrive, sentry_key={key}",
            },
        )

    async def close(self) -> None:
        await self._poster.close()


def event(alert: Alert, now: datetime) -> dict[str, Any]:
    """https://develop.sentry.dev/sdk/data-model/event-payloads/"""
    tags = {
        "kind": alert.kind, "queue": alert.queue, "task": alert.task, "reason": alert.reason,
        "group": alert.fingerprint,
    }  # fmt: skip
    return {
        "event_id": alert.id.replace("-", ""),
        "timestamp": shown_time(alert.created_at),
        "platform": "other",
        "logger": "redrive",
        "level": "info" if alert.kind == "test" else "error",
        "fingerprint": ["redrive", alert.subject],
        "logentry": {"formatted": f"{title(alert)}\n{text(alert)}"},
        "tags": {name: value[:200] for name, value in tags.items() if value},
        "extra": {"alert": as_json(alert, now)},
    }


def envelope(alert: Alert, now: datetime) -> bytes:
    """The event with its headers, a JSON object a line."""
    payload = json.dumps(event(alert, now)).encode()
    head = json.dumps({"event_id": alert.id.replace("-", ""), "sent_at": shown_time(now)}).encode()
    item = json.dumps({"type": "event", "content_type": "application/json", "length": len(payload)}).encode()
    return b"\n".join((head, item, payload, b""))
