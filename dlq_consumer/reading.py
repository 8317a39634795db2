"""What one delivery from a dead-letter queue says by itself. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple

from storage.text import safe_text
from topology.channel import Delivery
from topology.deaths import Death, deaths
from topology.delivery import Delivery as TaskDelivery
from topology.delivery import Refusal, TaskMessage, check_delivery, delivery_of
from topology.headers import ATTEMPT, DEATH_HEADERS, REPLAY, Attempt, parse_attempt
from topology.identity import has_identity, letter_key
from topology.wire import MalformedProperties, Properties, split

MAX_ID = 255
_DEATHS = frozenset(DEATH_HEADERS)


class Reading(NamedTuple):
    """A letter taken apart; `fault` says why its property list cannot be.

    Of what it was cut into, no more is kept than is stored: each object that lives on costs time in the
    garbage collector.
    """

    dlq: str
    delivery: Delivery
    message_id: str | None
    fault: str | None
    history: tuple[Death, ...]
    checked: TaskMessage | Refusal | None
    attempt: Attempt | None
    replay_token: str | None
    identity: bytes
    has_identity: bool
    body_sha256: bytes
    redacted: tuple[str, ...] = ()  # paths of values that were taken out

    @property
    def task(self) -> str | None:
        return self.checked.task if self.checked is not None else None

    @property
    def job_id(self) -> str | None:
        """The task id, for what names a task: None also for one that no job row can have."""
        if self.checked is None or not self.checked.task or not self.checked.id:
            return None
        return self.checked.id if safe_text(self.checked.id, MAX_ID) == self.checked.id else None


def read(
    delivery: Delivery, *, dlq: str, source: str, known_tasks: Collection[str] | None, now: datetime
) -> Reading:
    """Take a letter apart. Odd content is no error.

    Args:
        source: cluster, vhost and queue in one text: letters of two sources are never the same.
        known_tasks: tasks of the catalogue, or None when there is none.
        now: when it arrived here; a message counts as expired if it was when it died.
    """
    body_sha256 = hashlib.sha256(delivery.body).digest()
    try:
        properties = split(delivery.properties)
    except MalformedProperties as error:
        identity = letter_key(source, delivery.properties, delivery.body)
        return Reading(dlq, delivery, None, str(error), (), None, None, None, identity, False, body_sha256)
    history = deaths(properties)
    # What the broker says of its death decides nothing, and takes the longest to decode.
    message = delivery_of(properties, delivery.body, without=_DEATHS)
    headers = message.headers
    died_at = history[0].time if history and history[0].count == 1 else None
    checked = _at_death(message, known_tasks, died_at or now)
    token = headers.get(REPLAY)
    return Reading(
        dlq=dlq,
        delivery=delivery,
        message_id=properties.text("message_id"),
        fault=None,
        history=history,
        checked=checked,
        attempt=parse_attempt(headers.get(ATTEMPT)),
        replay_token=token if isinstance(token, str) else None,
        identity=letter_key(source, delivery.properties, delivery.body, properties),
        has_identity=has_identity(properties),
        body_sha256=body_sha256,
    )


def as_task(
    properties: Properties,
    body: bytes,
    *,
    known_tasks: Collection[str] | None = None,
    now: datetime | None = None,
) -> TaskMessage | Refusal:
    """What a worker would read in it; see `topology.delivery.check_delivery`."""
    return check_delivery(delivery_of(properties, body), known_tasks=known_tasks, now=now)


def _at_death(
    message: TaskDelivery, known_tasks: Collection[str] | None, at: datetime
) -> TaskMessage | Refusal:
    """The same at the time of death, which the broker tells to the second, rounded down."""
    checked = check_delivery(message, known_tasks=known_tasks, now=at)
    if isinstance(checked, Refusal) or checked.expires is None:
        return checked
    return check_delivery(message, known_tasks=known_tasks, now=at + timedelta(seconds=1))
