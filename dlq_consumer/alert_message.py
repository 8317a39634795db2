"""What an alert says, in words and as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from dlq_consumer.printing import plain
from storage.alerts import Alert
from storage.times import shown_time

TEST = "test"
_MOST_TITLE = 200
_WORDS = {
    "first_seen": "a new group of dead letters",
    "seen_again": "dead letters again after a silence",
    "regression": "dead letters again, though this was resolved",
    "rate": "many dead letters",
    "resolved": "resolved",
    "no_consumer": "a dead-letter queue has no consumer",
    "oldest_undecided": "a dead letter has waited too long",
    TEST: "a test: nothing is wrong",
}


def title(alert: Alert) -> str:
    """One line."""
    words = _WORDS.get(alert.kind, alert.kind)
    about = _of_group(alert) if alert.fingerprint else alert.subject
    text = f"Redrive: {words}" if alert.kind == TEST else f"Redrive: {words}: {about}"
    return plain(text)[:_MOST_TITLE]


def _of_group(alert: Alert) -> str:
    where = f" in {alert.task}" if alert.task else ""
    return f"{alert.exception_type or alert.reason}{where}, queue {alert.queue}"


def text(alert: Alert) -> str:
    """A few lines, each without what a terminal or a mail header would obey."""
    lines: list[tuple[str, object]] = [("detail", alert.detail)]
    if alert.fingerprint:
        lines += [
            ("queue", alert.queue), ("task", alert.task), ("reason", alert.reason),
            ("exception", alert.exception_type), ("at", alert.top_frame), ("letters", alert.letters),
            ("first seen", shown_time(alert.first_seen)), ("last seen", shown_time(alert.last_seen)),
            ("look", f"dlq group {alert.fingerprint[:12]}"),
        ]  # fmt: skip
    if alert.letter_id is not None:
        lines.append(("letter", f"dlq show {alert.letter_id}"))
    lines.append(("alert", alert.id))
    return "\n".join(f"{name}: {plain(value)}" for name, value in lines if value is not None)


def as_json(alert: Alert, now: datetime) -> dict[str, Any]:
    """The body of the webhook's POST."""
    group = {
        "fingerprint": alert.fingerprint,
        "queue": alert.queue,
        "task": alert.task,
        "reason": alert.reason,
        "exception_type": alert.exception_type,
        "top_frame": alert.top_frame,
        "letters": alert.letters,
        "first_seen": shown_time(alert.first_seen),
        "last_seen": shown_time(alert.last_seen),
    }
    return {
        "id": alert.id,
        "kind": alert.kind,
        "subject": alert.subject,
        "title": title(alert),
        "detail": alert.detail,
        "group": group if alert.fingerprint else None,
        "letter_id": alert.letter_id,
        "raised_at": shown_time(alert.created_at),
        "sent_at": shown_time(now),
    }


def test_alert() -> Alert:
    """One that says that it is a test."""
    now = datetime.now(UTC)
    return Alert(str(uuid4()), TEST, TEST, None, "sent by `dlq alerts test`", now, 1)
