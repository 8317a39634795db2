"""The marked messages of `topology verify`, and what is answered to one that has arrived.

A probe is recognised by its whole shape, never by its header alone: it has no body, no task and no property
but those below, so nothing is lost with it. Whatever differs in anything is a message like any other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from topology.deaths import deaths
from topology.headers import DEATH_HEADERS, DELIVERY_COUNTERS, PROBE, PUBLISH
from topology.messages import Message
from topology.task_properties import PERSISTENT
from topology.wire import MalformedProperties, Properties, properties, split

CONTENT_TYPE = "application/vnd.redrive.probe"
# Names of this beginning only the broker gives: an answer reaches nobody's durable queue.
_SERVER_NAMED = b"amq.gen-"
_THE_BROKERS = {name.encode() for name in (*DEATH_HEADERS, *DELIVERY_COUNTERS)}
_MARKS = sorted((PROBE.encode(), PUBLISH.encode()))
_MAY_DIFFER = ("content_type", "headers", "delivery_mode", "priority", "reply_to", "expiration")


@dataclass(frozen=True)
class Probe:
    """`reply_to` is a server-named queue of the sender."""

    id: UUID
    reply_to: str


@dataclass(frozen=True)
class Arrival:
    """Where a probe came out: in `queue`; died before in `deaths` as (queue, reason), the latest first."""

    probe: UUID
    queue: str
    deaths: tuple[tuple[str, str], ...]


def probe_message(probe: Probe, *, expires_ms: int | None = None, priority: int | None = None) -> Message:
    """A probe as it is sent.

    Args:
        expires_ms: after so long in a queue, and once at its head, the broker dead-letters it.
    """
    raw = properties(
        headers={PROBE: str(probe.id), PUBLISH: str(probe.id)},
        content_type=CONTENT_TYPE,
        delivery_mode=PERSISTENT,
        reply_to=probe.reply_to,
        priority=priority,
        expiration=None if expires_ms is None else str(expires_ms),
    )
    return Message(raw.encode(), b"")


def probe_of(raw_properties: bytes, body: bytes) -> Probe | None:
    """The probe that a message is, or None for every other message. Never raises."""
    if body:
        return None
    try:
        found = split(raw_properties)
    except MalformedProperties:
        return None
    marks = [entry for entry in found.headers or () if entry.key not in _THE_BROKERS]
    bare = found.without(*_MAY_DIFFER) == Properties()
    if (
        not bare
        or found.content_type != CONTENT_TYPE.encode()
        or not (found.reply_to or b"").startswith(_SERVER_NAMED)
        or sorted(entry.key for entry in marks) != _MARKS
        or marks[0].value != marks[1].value
    ):
        return None
    id_ = _uuid(found.get_header(PROBE))
    return None if id_ is None else Probe(id_, (found.reply_to or b"").decode(errors="surrogateescape"))


def arrival(probe: Probe, queue: str, raw_properties: bytes) -> Arrival:
    """That `probe` was delivered from `queue` with these properties."""
    history = deaths(split(raw_properties))
    return Arrival(probe.id, queue, tuple((death.queue, death.reason) for death in history))


def answer_message(arrived: Arrival, token: str) -> Message:
    """The drainer's word to the sender. `token`: see `Publisher.publish`."""
    body = {"probe": str(arrived.probe), "queue": arrived.queue, "deaths": arrived.deaths}
    raw = properties(headers={PUBLISH: token}, content_type="application/json")
    return Message(raw.encode(), json.dumps(body).encode())


def parse_answer(body: bytes) -> Arrival | None:
    """The arrival that an answer tells of, or None for anything else."""
    try:
        found = json.loads(body)
        id_ = _uuid(found["probe"])
        history = tuple((str(queue), str(reason)) for queue, reason in found["deaths"])
        return None if id_ is None else Arrival(id_, str(found["queue"]), history)
    except (ValueError, TypeError, KeyError):
        return None


def _uuid(text: Any) -> UUID | None:
    try:
        found = UUID(text)
    except (ValueError, TypeError, AttributeError):
        return None
    return found if str(found) == text else None
