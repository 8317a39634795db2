"""Alerts: what is shown of them, an example of each answer, and the operations."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.openapi import story
from api.openapi.operation import Operation, one
from api.openapi.schema import Count, Fingerprint, NextCursor, Shown, Time, Uuid
from storage.alert_list import AlertState
from storage.alert_rules import AlertKind


class AlertDelivery(Shown):
    """What became of an alert on one channel."""

    channel: str
    state: Literal["pending", "delivered", "given_up", "snoozed"]
    tries: Count
    delivered_at: Time | None
    last_error: str | None


class Alert(Shown):
    id: Uuid
    kind: AlertKind
    subject: str = Field(description="a group's fingerprint, or such as `no_consumer:payments.dlq`")
    group: Fingerprint | None
    letter_id: int | None
    detail: str | None
    state: AlertState
    raised_at: Time
    delivered_at: Time | None
    snoozed_until: Time | None = Field(description="of its subject")
    deliveries: list[AlertDelivery]


class AlertList(Shown):
    alerts: list[Alert]
    next_cursor: NextCursor


class SnoozedSubject(Shown):
    subject: str = Field(description="the whole of it")
    snoozed_until: Time | None


class ChannelTest(Shown):
    id: Uuid


_SENT_AT = story.at("12:00:01.104772")
_SENT = {"channel": "webhook", "state": "delivered", "tries": 1, "delivered_at": _SENT_AT, "last_error": None}
_ALERT: dict[str, Any] = {
    "id": story.ALERT, "kind": "first_seen", "subject": story.GROUP, "group": story.GROUP,
    "letter_id": story.LETTER, "detail": None, "state": "delivered", "raised_at": story.STORED,
    "delivered_at": _SENT_AT, "snoozed_until": None, "deliveries": [_SENT],
}  # fmt: skip
_ABOUT = ("unknown-subject", "ambiguous-group")
OPERATIONS = {
    "GET /alerts": Operation(
        "list_alerts", one(AlertList, {"alerts": [_ALERT], "next_cursor": None}, "A page of alerts.")
    ),
    "GET /alerts/{alert_id}": Operation("get_alert", one(Alert, _ALERT, "The alert."), ("unknown-alert",)),
    "POST /alerts/snooze": Operation(
        "snooze_alerts",
        one(SnoozedSubject, {"subject": story.GROUP, "snoozed_until": story.IN_A_WEEK}, "It is snoozed."),
        _ABOUT,
    ),
    "POST /alerts/unsnooze": Operation(
        "unsnooze_alerts",
        one(SnoozedSubject, {"subject": story.GROUP, "snoozed_until": None}, "It alerts again."),
        _ABOUT,
    ),
    "POST /alerts/test": Operation(
        "test_alert_channels",
        one(
            ChannelTest, {"id": story.TEST_ALERT}, "The consumer sends it: see Location.", 202, ("Location",)
        ),
    ),
}
