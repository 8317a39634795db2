"""Alerts: written in the transaction that stores the letters, delivered after it, each channel by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from storage.alert_rules import AlertKind, AlertPolicy
from storage.errors import translate
from storage.pool import AnyConnection, Pool
from storage.schema import has_table, needs_this_release, off_without_table
from storage.text import safe_text

# A channel that was taken out of the settings leaves its deliveries behind.
FORGOTTEN = "2 days"
MAX_DETAIL = 2_000

_RAISE = """
INSERT INTO redrive.alerts (subject, fingerprint, kind, letter_id, detail, state)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[])
RETURNING id, kind, state
"""
# On the schema of the release before, whose dispatcher sends 'pending' ones.
_RAISE_AS_BEFORE = """
INSERT INTO redrive.alerts (fingerprint, kind, letter_id, state)
SELECT f, k, l, $4 FROM unnest($1::text[], $2::text[], $3::bigint[]) AS t (f, k, l)
"""
_FAN_OUT = (
    "INSERT INTO redrive.alert_deliveries (alert_id, channel) SELECT * FROM unnest($1::uuid[], $2::text[])"
)
# Those of the release before that it has not sent, or did not live to.
_ADOPT = """
WITH adopted AS (
    UPDATE redrive.alerts SET state = 'sending' WHERE state = 'pending' AND next_try_at <= now() RETURNING id)
INSERT INTO redrive.alert_deliveries (alert_id, channel)
SELECT id, channel FROM adopted CROSS JOIN unnest($1::text[]) AS channel
"""
# Asked for by the API, which does not know the channels: the consumer takes it over as one of those.
_ASK = """
INSERT INTO redrive.alerts (subject, kind, detail, state) VALUES ('test', 'test', $1, 'pending')
RETURNING id::text
"""
_NOWHERE = "UPDATE redrive.alerts SET state = 'no_channel' WHERE kind = 'test' AND state = 'pending'"
# Pushing next_try_at ahead is the claim: a dispatcher that dies leaves the alert to be sent again.
_CLAIM = """
UPDATE redrive.alert_deliveries d SET next_try_at = now() + make_interval(secs => $3), tries = d.tries + 1
FROM redrive.alerts a LEFT JOIN redrive.groups g USING (fingerprint)
WHERE a.id = d.alert_id AND d.channel = $1 AND d.alert_id IN (
    SELECT alert_id FROM redrive.alert_deliveries
    WHERE channel = $1 AND state = 'pending' AND next_try_at <= now()
    ORDER BY next_try_at LIMIT $2 FOR UPDATE SKIP LOCKED)
RETURNING a.id::text, coalesce(a.subject, a.fingerprint) AS subject, a.kind, a.letter_id, a.detail,
    a.created_at, d.tries, g.fingerprint, g.queue, g.task, g.reason, g.exception_type, g.top_frame,
    g.letters, g.first_seen, g.last_seen
"""
# Whoever settles the last channel sees the others': one at a time.
_LOCK = "SELECT true FROM redrive.alerts WHERE id = $1::uuid FOR UPDATE"
_DELIVERED = """
UPDATE redrive.alert_deliveries SET state = 'delivered', delivered_at = now(), last_error = NULL
WHERE alert_id = $1::uuid AND channel = $2
"""
_FAILED = """
UPDATE redrive.alert_deliveries SET last_error = $3, next_try_at = now() + make_interval(secs => $4),
    state = CASE WHEN $5 THEN 'given_up' ELSE state END
WHERE alert_id = $1::uuid AND channel = $2 AND state = 'pending'
"""
_SETTLE = """
UPDATE redrive.alerts a
SET state = d.state, delivered_at = CASE WHEN d.state = 'delivered' THEN now() ELSE a.delivered_at END
FROM (SELECT CASE WHEN bool_or(state = 'pending') THEN 'sending'
                  WHEN bool_or(state = 'given_up') THEN 'given_up'
                  WHEN bool_or(state = 'snoozed') THEN 'snoozed' ELSE 'delivered' END AS state
      FROM redrive.alert_deliveries WHERE alert_id = $1::uuid) d
WHERE a.id = $1::uuid
"""
_LEFT_BEHIND = f"""
SELECT alert_id::text, channel FROM redrive.alert_deliveries
WHERE state = 'pending' AND created_at < now() - interval '{FORGOTTEN}' AND channel <> ALL($1::text[])
ORDER BY alert_id LIMIT 100
"""  # noqa: S608 - a text from above


@dataclass(frozen=True)
class NewAlert:
    """An alert to be written down. Of a group, `subject` is its fingerprint."""

    subject: str
    kind: AlertKind
    letter_id: int | None = None
    detail: str | None = None
    snoozed: bool = False
    group: bool = True


@dataclass(frozen=True)
class Alert:
    """One alert to deliver, with its group, if it has one, as it is now. `tries` counts this one."""

    id: str
    subject: str
    kind: str
    letter_id: int | None
    detail: str | None
    created_at: datetime
    tries: int
    fingerprint: str | None = None
    queue: str | None = None
    task: str | None = None
    reason: str | None = None
    exception_type: str | None = None
    top_frame: str | None = None
    letters: int | None = None
    first_seen: datetime | None = None
    last_seen: datetime | None = None


async def raise_alerts(connection: AnyConnection, new: Sequence[NewAlert], policy: AlertPolicy) -> int:
    """Write alerts inside the caller's transaction, a delivery for each channel; how many alerts.

    Without a channel they are on record and never sent: whoever configures one later wants no old news.
    """
    if not new:
        return 0
    if not await has_table(connection, "alert_deliveries"):
        state = "pending" if policy.routes else "no_channel"
        rows = [(alert.subject, alert.kind, alert.letter_id) for alert in new]
        await connection.execute(_RAISE_AS_BEFORE, *zip(*rows, strict=True), state)
        return len(new)
    rows_now = [
        (
            alert.subject, alert.subject if alert.group else None, alert.kind, alert.letter_id,
            None if alert.detail is None else safe_text(alert.detail, MAX_DETAIL),
            "snoozed" if alert.snoozed else "sending" if policy.channels(alert.kind) else "no_channel",
        )
        for alert in new
    ]  # fmt: skip
    written = await connection.fetch(_RAISE, *zip(*rows_now, strict=True))
    deliveries = [
        (row["id"], channel)
        for row in written
        if row["state"] == "sending"
        for channel in policy.channels(row["kind"])
    ]
    if deliveries:
        await connection.execute(_FAN_OUT, *zip(*deliveries, strict=True))
    return len(new)


@off_without_table(otherwise=lambda: None)
async def adopt(db: Pool | AnyConnection, policy: AlertPolicy) -> None:
    """Take over what the release before wrote and has not sent, and tests. Raises DatabaseAwayError."""
    with translate("take alerts over"):
        if policy.routes:
            await db.execute(_ADOPT, [route.channel for route in policy.routes])
        else:
            await db.execute(_NOWHERE)


async def ask_for_test(db: Pool | AnyConnection, *, by: str) -> str:
    """Let the consumer send a test through each of its channels; the alert's id.

    Raises:
        MigrationError: the schema is of the release before.
        DatabaseAwayError: Postgres cannot be reached.
    """
    with translate("ask for a test alert"), needs_this_release("ask for a test alert"):
        return str(await db.fetchval(_ASK, safe_text(f"asked for by {by}", MAX_DETAIL)))


@off_without_table(otherwise=list)
async def claim_due(pool: Pool, channel: str, *, limit: int, lease_s: float) -> list[Alert]:
    """Alerts to deliver now. One that is not reported on within `lease_s` seconds comes up again."""
    with translate("look for alerts"):
        return [Alert(**dict(row)) for row in await pool.fetch(_CLAIM, channel, limit, lease_s)]


async def delivered(pool: Pool, alert_id: str, channel: str) -> None:
    with translate("record a delivered alert"):
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(_LOCK, alert_id)
            await connection.execute(_DELIVERED, alert_id, channel)
            await connection.execute(_SETTLE, alert_id)


async def failed(
    pool: Pool, alert_id: str, channel: str, error: str, *, retry_in_s: float, give_up: bool
) -> None:
    with translate("record a failed alert"):
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(_LOCK, alert_id)
            await connection.execute(_FAILED, alert_id, channel, error, retry_in_s, give_up)
            await connection.execute(_SETTLE, alert_id)


@off_without_table(otherwise=lambda: None)
async def forget(pool: Pool, channels: Sequence[str]) -> None:
    """Give up what has waited for days for a channel that is none of `channels` any more."""
    with translate("give up alerts"):
        for row in await pool.fetch(_LEFT_BEHIND, list(channels)):
            why = "no process has this channel any more"
            await failed(pool, row["alert_id"], row["channel"], why, retry_in_s=0, give_up=True)
