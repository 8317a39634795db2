"""The broker's account of how a message died: evidence for reading, never a counter to decide by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from topology.names import UNROUTED_DLQ, dlq, work_queues_of
from topology.spec import Topology
from topology.wire import Properties, decode_value, split
from topology.wire_values import split_table, value_end

_X_DEATH = "x-death"
_KEY = bytes([len(_X_DEATH)]) + _X_DEATH.encode()  # as it stands in a table
_SHORT = 4_096
# A ladder step of any topology, also of one that is no longer declared.
_STEP = re.compile(r".+\.retry\.[0-9]+m?s")


@dataclass(frozen=True)
class Death:
    """One entry of `x-death`: all deaths of the message in `queue` for `reason`.

    `time` is that of the first of them, to the second; None where the entry does not say.
    https://www.rabbitmq.com/docs/dlx#effects
    """

    queue: str
    reason: str
    exchange: str
    routing_keys: tuple[str, ...]
    count: int
    time: datetime | None

    @property
    def words(self) -> str:
        """What happened, for a person."""
        what = {
            "rejected": "rejected by its consumer",
            "expired": "outlived its time to live",
            "maxlen": "pushed out of a full queue",
            "delivery_limit": "returned more often than the delivery limit allows",
        }.get(self.reason, f"dead-lettered as {self.reason!r}")
        times = "" if self.count == 1 else f", {self.count} times"
        return f"{what} in {self.queue}{times}"


def deaths(properties: Properties) -> tuple[Death, ...]:
    """The death history, the latest first. Entries of another shape are left out: anyone may send it."""
    for entry in properties.headers or ():
        if entry.key == _KEY[1:]:
            # Letters that died within one second in one queue have it in common.
            return (_remembered if len(entry.value) <= _SHORT else _deaths_in)(entry.value)
    return ()


def _deaths_in(value: bytes) -> tuple[Death, ...]:
    entries = decode_value(value)
    if not isinstance(entries, list):
        return ()
    return tuple(death for entry in entries if (death := _death(entry)) is not None)


_remembered = lru_cache(maxsize=256)(_deaths_in)


def forged(raw: bytes) -> bool:
    """Whether a property list has a death history that no broker wrote.

    RabbitMQ 3.10.8 cannot add to an array that holds anything but tables (`function_clause` in
    rabbit_fifo_dlx_worker): with such a message rejected, it holds back all dead letters of the queue.
    """
    if _KEY not in raw:
        return False
    for entry in split(raw).headers or ():
        if entry.key == _KEY[1:] and not _written_by_a_broker(entry.value):
            return True
    return False


def _written_by_a_broker(value: bytes) -> bool:
    if value[:1] != b"A":
        return False
    offset, end = 5, len(value)
    while offset < end:
        after = value_end(value, offset, end)
        if value[offset : offset + 1] != b"F":
            return False
        kinds = {entry.key: entry.value[:1] for entry in split_table(value[offset + 5 : after])}
        if (kinds.get(b"queue"), kinds.get(b"reason"), kinds.get(b"count")) != (b"S", b"S", b"l"):
            return False
        offset = after
    return True


def target_of(
    topology: Topology | None, drained_from: str, history: tuple[Death, ...], routing_key: str
) -> str | None:
    """The queue that a letter is sent back to: where it died, or the work queue whose ladder it died on.

    None when nothing tells, and when the queue named is a retry step that this topology does not know.

    Args:
        topology: None in a vhost that has none of ours.
        drained_from: the dead-letter queue.
        routing_key: of the letter as delivered; tells the work queue in the catch-all queue, and of a letter
            that died on a shared ladder.
    """
    if history:
        died_in = history[0].queue
        ours = work_queues_of(topology, died_in) if topology else ()
        if not ours:
            return None if _STEP.fullmatch(died_in) else died_in
        return ours[0] if len(ours) == 1 else _named_by(routing_key, ours)
    if topology is None:
        return None
    for queue in topology.queues:
        if drained_from == dlq(queue.name):
            return queue.name
    if drained_from == UNROUTED_DLQ:
        return _named_by(routing_key, [queue.name for queue in topology.queues])
    return None


def _named_by(routing_key: str, queues: Iterable[str]) -> str | None:
    """On a ladder the queue's name is what follows its shape and the bits; elsewhere it is the whole key."""
    for queue in queues:
        bits = routing_key.removesuffix(queue)
        if bits != routing_key and re.fullmatch(r"([0-9]+x[0-9]+\.)?([01]\.)*", bits):
            return queue
    return None


def _death(entry: object) -> Death | None:
    if not isinstance(entry, Mapping):
        return None
    queue, reason = entry.get("queue"), entry.get("reason")
    if not isinstance(queue, str) or not isinstance(reason, str):
        return None
    exchange, keys = entry.get("exchange"), entry.get("routing-keys")
    count, time = entry.get("count"), entry.get("time")
    return Death(
        queue=queue,
        reason=reason,
        exchange=exchange if isinstance(exchange, str) else "",
        routing_keys=tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else (),
        count=count if isinstance(count, int) else 1,
        time=time if isinstance(time, datetime) else None,
    )
