"""Alerts: written in the transaction that stores the letters, delivered after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from storage.errors import translate
from storage.pool import AnyConnection, Pool

AlertKind = Literal["first_seen", "seen_again", "regression"]

_RAISE = """
INSERT INTO redrive.alerts (fingerprint, kind, letter_id, state)
SELECT f, k, l, $4 FROM unnest($1::text[], $2::text[], $3::bigint[]) AS t (f, k, l)
"""
# Pushing next_try_at ahead is the claim: a dispatcher that dies leaves the alert to be sent again.
_CLAIM = """
UPDATE redrive.alerts a SET next_try_at = now() + make_interval(secs => $2), tries = tries + 1
FROM redrive.groups g
WHERE g.fingerprint = a.fingerprint AND a.id IN (
    SELECT id FROM redrive.alerts WHERE state = 'pending' AND next_try_at <= now()
    ORDER BY next_try_at LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING a.id::text, a.kind, a.letter_id, a.tries, g.*
"""
_DELIVERED = """
UPDATE redrive.alerts SET state = 'delivered', delivered_at = now(), last_error = NULL WHERE id = $1::uuid
"""
_FAILED = """
UPDATE redrive.alerts SET last_error = $2, next_try_at = now() + make_interval(secs => $3),
    state = CASE WHEN $4 THEN 'given_up' ELSE state END
WHERE id = $1::uuid AND state = 'pending'
"""


@dataclass(frozen=True)
class Alert:
    """One alert to deliver, with its group as it is now. `tries` counts this one."""

    id: str
    kind: AlertKind
    letter_id: int
    tries: int
    fingerprint: str
    queue: str
    task: str | None
    reason: str
    exception_type: str | None
    top_frame: str | None
    letters: int
    first_seen: datetime
    last_seen: datetime


async def raise_alerts(
    connection: AnyConnection, alerts: Sequence[tuple[str, AlertKind, int]], *, has_channel: bool
) -> None:
    """Write alerts (fingerprint, kind, letter id) inside the caller's transaction.

    Without a channel they are on record and never sent: whoever configures one later wants no old news.
    """
    if alerts:
        prints, kinds, letters = zip(*alerts, strict=True)
        state = "pending" if has_channel else "no_channel"
        await connection.execute(_RAISE, prints, kinds, letters, state)


async def claim_due(pool: Pool, *, limit: int, lease_s: float) -> list[Alert]:
    """Alerts to deliver now. One that is not reported on within `lease_s` seconds comes up again."""
    with translate("look for alerts"):
        return [Alert(**dict(row)) for row in await pool.fetch(_CLAIM, limit, lease_s)]


async def delivered(pool: Pool, alert_id: str) -> None:
    with translate("record a delivered alert"):
        await pool.execute(_DELIVERED, alert_id)


async def failed(pool: Pool, alert_id: str, error: str, *, retry_in_s: float, give_up: bool) -> None:
    with translate("record a failed alert"):
        await pool.execute(_FAILED, alert_id, error, retry_in_s, give_up)
