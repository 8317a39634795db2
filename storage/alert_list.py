"""Reading alerts, with what became of each delivery."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import asyncpg

from storage.alert_rules import AlertKind
from storage.errors import StorageError, translate
from storage.letter_filter import Parameters
from storage.newest_first import cursor_of, position
from storage.pool import AnyConnection, Pool
from storage.schema import needs_this_release
from storage.times import shown_time

AlertState = Literal["pending", "sending", "delivered", "no_channel", "given_up", "snoozed"]
ALERT_STATES: tuple[AlertState, ...] = (
    "pending", "sending", "delivered", "no_channel", "given_up", "snoozed",
)  # fmt: skip
MAX_PAGE = 1_000
_LIST = """
SELECT a.id::text, a.kind, coalesce(a.subject, a.fingerprint) AS subject, a.fingerprint, a.letter_id,
       a.detail, a.state, a.created_at, a.delivered_at, s.snoozed_until,
       coalesce((SELECT json_agg(json_build_object('channel', d.channel, 'state', d.state, 'tries', d.tries,
                     'delivered_at', d.delivered_at, 'last_error', d.last_error) ORDER BY d.channel)
                 FROM redrive.alert_deliveries d WHERE d.alert_id = a.id), '[]')::text AS deliveries
FROM redrive.alerts a LEFT JOIN redrive.alert_subjects s ON s.subject = coalesce(a.subject, a.fingerprint)
"""


class UnknownAlertError(StorageError):
    """No alert has this id."""


@dataclass(frozen=True)
class AlertFilter:
    """Which alerts; None leaves a field open. `subject`: it begins so. `since` <= raised < `until`."""

    kind: AlertKind | None = None
    state: AlertState | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class AlertRow:
    """An alert on record. `deliveries`: channel, state, tries, delivered_at, last_error of each."""

    id: str
    kind: str
    subject: str
    fingerprint: str | None
    letter_id: int | None
    detail: str | None
    state: str
    created_at: datetime
    delivered_at: datetime | None
    snoozed_until: datetime | None
    deliveries: tuple[dict[str, Any], ...]

    @property
    def cursor(self) -> str:
        """What gives the page that follows this alert."""
        return cursor_of(self.created_at, self.id)

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "subject": self.subject,
            "group": self.fingerprint,
            "letter_id": self.letter_id,
            "detail": self.detail,
            "state": self.state,
            "raised_at": shown_time(self.created_at),
            "delivered_at": shown_time(self.delivered_at),
            "snoozed_until": shown_time(self.snoozed_until),
            "deliveries": list(self.deliveries),
        }


async def newest(
    db: Pool | AnyConnection, wanted: AlertFilter, *, limit: int, cursor: str | None = None
) -> Sequence[AlertRow]:
    """The newest first, at most `MAX_PAGE` and one: the one more tells whether another page follows.

    Raises:
        CursorError: no page gave this cursor out.
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    conditions, values = ["true"], Parameters(min(limit, MAX_PAGE + 1))
    for condition, value in (
        ("a.kind = {}", wanted.kind),
        ("a.state = {}", wanted.state),
        ("starts_with(coalesce(a.subject, a.fingerprint), {})", wanted.subject),
        ("a.created_at >= {}", wanted.since),
        ("a.created_at < {}", wanted.until),
    ):
        if value is not None:
            conditions.append(condition.format(values.add(value)))
    if cursor is not None:
        at, id_ = position(cursor, "alerts")
        conditions.append(f"(a.created_at, a.id) < ({values.add(at)}::timestamptz, {values.add(id_)}::uuid)")
    sql = f"{_LIST} WHERE {' AND '.join(conditions)} ORDER BY a.created_at DESC, a.id DESC LIMIT $1"
    with translate("list alerts"), needs_this_release("list alerts"):
        return [_row(row) for row in await db.fetch(sql, *values.values)]


async def get(db: Pool | AnyConnection, alert_id: UUID) -> AlertRow:
    """One alert.

    Raises:
        UnknownAlertError: there is none.
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("read an alert"), needs_this_release("read an alert"):
        row = await db.fetchrow(f"{_LIST} WHERE a.id = $1", alert_id)
    if row is None:
        raise UnknownAlertError(f"no alert {alert_id}. See: dlq alerts")
    return _row(row)


def _row(row: asyncpg.Record) -> AlertRow:
    return AlertRow(**(dict(row) | {"deliveries": tuple(json.loads(row["deliveries"]))}))
