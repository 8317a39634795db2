"""One marked message is put into a queue and made to leave it in a chosen way."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import pika
from pika.exceptions import NackError

from tests.support.oracle.site import DURABLE, Site

Way = Literal["rejected", "expired", "maxlen", "delivery_limit"]
WAYS: tuple[Way, ...] = get_args(Way)

# More than any limit that the strategies draw, and one more: a quorum queue refuses one message late.
FILLERS = 4
FILLER = "filler"
# More messages than are ever under way at once.
CROWD = 500
DELIVERY_S = 3.0
SLOW_MS = 120  # time enough to fill a queue
OWN_TTL_MS = 30  # long enough that each message of a group is at the head of its queue before one expires


@dataclass(frozen=True)
class Drive:
    """A message with routing key `key` leaves `queue` in `way`."""

    queue: str
    way: Way
    key: str
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        headers = f", headers {dict(self.headers)}" if self.headers else ""
        return f"queue {self.queue!r}, {self.way}, key {self.key!r}{headers}"


@dataclass(frozen=True)
class Limits:
    """What makes messages leave a queue, as the linter has it. It says how to drive, not where a letter goes:
    where it is wrong the message does not move as it should, and that is seen.

    Attributes:
        length: messages; 0 also where a byte limit refuses every message.
        rejects: it refuses to the publisher what is over its length, dead-lettering it or not.
        quorum: such a queue takes one message more than its limit before it refuses.
        returns: how often a message may come back before it is dead-lettered; negative counts as 0.
    """

    ttl_ms: int | None = None
    length: int | None = None
    returns: int | None = None
    rejects: bool = False
    quorum: bool = False

    @property
    def closed(self) -> bool:
        """It takes no message at all from a publisher."""
        return self.length == 0 and self.rejects and not self.quorum


class Undriven(Exception):
    """The message did not move as it should have; the text says how."""


def obstacle(drive: Drive, limits: Mapping[str, Limits]) -> str | None:
    """Why this is not tried: the way is closed, or another may come first. None: it can be driven."""
    queue = limits[drive.queue]
    if drive.way == "maxlen":
        if queue.length is None:
            return "no length limit"
        if not fillers(drive, limits):
            return None if queue.length == 0 else "too long"
        if queue.ttl_ms is not None and queue.ttl_ms < SLOW_MS:
            return "it may expire before it is pushed out"
        if any(_crowded(other) for name, other in limits.items() if name != drive.queue):
            return "what pushes it out may be pushed out elsewhere too"
    if drive.way == "delivery_limit":
        if queue.returns is None:
            return "no delivery limit"
        if queue.returns > 0 and (queue.ttl_ms is not None or queue.length is not None):
            return "it may expire or be pushed out when it is returned"
    if drive.way != "maxlen" and queue.closed:
        return "the queue takes no message"
    if drive.way == "expired" and queue.length == 0:
        return "it is pushed out first"
    return None


def needs_solitude(drive: Drive, limits: Mapping[str, Limits]) -> bool:
    """Whether messages of other drives could change where this one goes: some queue has a length limit."""
    return drive.way == "maxlen" or any(_crowded(queue) for queue in limits.values())


def _crowded(queue: Limits) -> bool:
    return queue.length is not None and queue.length < CROWD


@dataclass
class Marked:
    """One message under way. `refused`: the broker would not take it from its publisher."""

    drive: Drive
    id: str
    tag: int | None = None
    refused: bool = False


def prepare(site: Site, drive: Drive, limits: Mapping[str, Limits]) -> Marked:
    """Everything but the last step, so that several messages can leave at once.

    Raises:
        Undriven: it never came to the consumer, or did not come back to it.
    """
    marked = Marked(drive, secrets.token_hex(6))
    if drive.way == "rejected":
        _hold(site, marked, returns=0)
    elif drive.way == "delivery_limit":
        _hold(site, marked, returns=max(0, limits[drive.queue].returns or 0))
    return marked


def release(site: Site, marked: Marked, limits: Mapping[str, Limits]) -> None:
    """The step after which the broker decides."""
    drive = marked.drive
    if drive.way in ("rejected", "delivery_limit"):
        assert marked.tag is not None
        site.channel.basic_reject(marked.tag, requeue=drive.way == "delivery_limit")
        return
    exchange, key = site.door(drive.queue, drive.key)
    if drive.way == "expired":
        own = OWN_TTL_MS if limits[drive.queue].ttl_ms is None else None
        site.channel.basic_publish(exchange, key, marked.id.encode(), _properties(marked, own))
        return
    count = fillers(drive, limits)
    _fill(site, drive.queue, count)
    try:
        site.confirmed.basic_publish(exchange, key, marked.id.encode(), _properties(marked), mandatory=True)
    except NackError:
        marked.refused = True
    _fill(site, drive.queue, count)


def release_order(drive: Drive, limits: Mapping[str, Limits]) -> int:
    """Of a group: a message with its own expiration must be at the head before letters come in."""
    own = drive.way == "expired" and limits[drive.queue].ttl_ms is None
    return 0 if own else 1


def fillers(drive: Drive, limits: Mapping[str, Limits]) -> int:
    """Messages that fill the queue before the marked one, and as many that push it out after it."""
    queue = limits[drive.queue]
    if drive.way != "maxlen" or queue.length is None or queue.length > FILLERS - 1:
        return 0
    return FILLERS if queue.length > 0 or (queue.quorum and queue.rejects) else 0


def _fill(site: Site, queue: str, count: int) -> None:
    for _ in range(count):
        try:
            site.confirmed.basic_publish(
                "", queue, FILLER.encode(), pika.BasicProperties(message_id=FILLER, delivery_mode=DURABLE)
            )
        except NackError:
            continue


def _hold(site: Site, marked: Marked, returns: int) -> None:
    """A consumer waits before the message comes: so it is delivered whatever the queue's TTL or limit."""
    got: list[int] = []
    tag = site.channel.basic_consume(
        marked.drive.queue, lambda _channel, method, _properties, _body: got.append(method.delivery_tag)
    )
    try:
        exchange, key = site.door(marked.drive.queue, marked.drive.key)
        site.confirmed.basic_publish(exchange, key, marked.id.encode(), _properties(marked), mandatory=True)
        _delivered(site, got, "it was not delivered to the waiting consumer")
        for _ in range(returns):
            site.channel.basic_reject(got.pop(), requeue=True)
            _delivered(site, got, "it did not come back after a return within the limit")
    except NackError:
        raise Undriven("the queue took no message") from None
    finally:
        site.channel.basic_cancel(tag)
    marked.tag = got[0]


def _delivered(site: Site, got: list[int], otherwise: str) -> None:
    end = time.monotonic() + DELIVERY_S
    while not got:
        site.connection.process_data_events(time_limit=0.01)
        if time.monotonic() > end:
            raise Undriven(otherwise)


def _properties(marked: Marked, expiration_ms: int | None = None) -> pika.BasicProperties:
    return pika.BasicProperties(
        message_id=marked.id,
        delivery_mode=DURABLE,
        headers=dict(marked.drive.headers) or None,
        expiration=None if expiration_ms is None else str(expiration_ms),
    )
