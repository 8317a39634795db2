"""The arguments of queues: which type of queue knows which, and what they may hold.

Each row was tried on RabbitMQ 3.10.8 and 4.3.6 by declaring a queue with it; 3.13 and 4.0 follow the released
sources (`rabbit_amqqueue:declare_args`, `capabilities()` of the queue types).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from topology.lint.target import Target
from topology.lint.values import LONGEST_MS, Wanted, age, number_of, one_of, text, truth, whole

QueueType = Literal["classic", "quorum", "stream"]
QUEUE_TYPES: tuple[QueueType, ...] = ("classic", "quorum", "stream")


_OLDEST = Target(3, 10)


@dataclass(frozen=True)
class Row:
    """Attributes:
    types: which know it. Any other type refuses it, from `since` on.
    since: before, every type keeps it and does nothing with it.
    checked: the broker refuses another value; otherwise it keeps it and goes on without.
    """

    wanted: Wanted
    types: frozenset[QueueType]
    since: Target = _OLDEST
    checked: bool = True


_CLASSIC: frozenset[QueueType] = frozenset({"classic"})
_QUORUM: frozenset[QueueType] = frozenset({"quorum"})
_STREAM: frozenset[QueueType] = frozenset({"stream"})
_QUEUES = _CLASSIC | _QUORUM
_4_3 = Target(4, 3)
_COUNT = whole(0)

ROWS: dict[str, Row] = {
    "x-queue-type": Row(one_of(*QUEUE_TYPES), _QUEUES | _STREAM),
    "x-expires": Row(whole(1, LONGEST_MS, " of milliseconds"), _QUEUES),
    "x-message-ttl": Row(whole(0, LONGEST_MS, " of milliseconds"), _QUEUES),
    "x-dead-letter-exchange": Row(text(), _QUEUES),
    "x-dead-letter-routing-key": Row(text(), _QUEUES),
    "x-dead-letter-strategy": Row(one_of("at-most-once", "at-least-once"), _QUORUM),
    "x-max-length": Row(_COUNT, _QUEUES),
    "x-max-length-bytes": Row(_COUNT, _QUEUES | _STREAM),
    "x-max-in-memory-length": Row(_COUNT, _QUORUM),
    "x-max-in-memory-bytes": Row(_COUNT, _QUORUM),
    "x-max-priority": Row(whole(0, 255), _CLASSIC),
    "x-overflow": Row(one_of("drop-head", "reject-publish", "reject-publish-dlx"), _QUEUES),
    "x-queue-mode": Row(one_of("default", "lazy"), _CLASSIC),
    "x-queue-version": Row(number_of(1, 2), _CLASSIC),
    "x-queue-master-locator": Row(one_of("client-local", "min-masters", "random"), _CLASSIC),
    "x-single-active-consumer": Row(truth(), _QUEUES),
    "x-queue-leader-locator": Row(
        one_of("client-local", "balanced", "random", "least-leaders"), _QUORUM | _STREAM
    ),
    "x-quorum-initial-group-size": Row(whole(1), _QUORUM),
    "x-delivery-limit": Row(whole(), _QUORUM, checked=False),
    "x-max-age": Row(age(), _STREAM),
    "x-stream-max-segment-size-bytes": Row(whole(0, 3_000_000_000), _STREAM),
    "x-initial-cluster-size": Row(whole(1), _STREAM),
    "x-stream-filter-size-bytes": Row(whole(16, 255), _STREAM, since=Target(3, 13)),
    "x-consumer-timeout": Row(_COUNT, _QUORUM, since=_4_3),
    "x-consumer-disconnected-timeout": Row(_COUNT, _QUORUM, since=_4_3),
    "x-delayed-retry-type": Row(text(), _QUORUM, since=_4_3, checked=False),
    "x-delayed-retry-min": Row(_COUNT, _QUORUM, since=_4_3, checked=False),
    "x-delayed-retry-max": Row(_COUNT, _QUORUM, since=_4_3, checked=False),
}
# Known to the broker or a plugin, and checked by nobody when a queue is declared.
UNCHECKED = frozenset({"x-quorum-target-group-size", "x-target-group-size"})


def row_of(name: str, target: Target) -> Row | None:
    """The argument's row as that version has it, or None where it does not know the argument."""
    row = ROWS.get(name)
    if row is None:
        return None
    if name == "x-consumer-timeout" and Target(3, 12) <= target < _4_3:
        return Row(_COUNT, _QUEUES | _STREAM, checked=False)
    if target < row.since:
        return None
    if name == "x-queue-leader-locator" and target >= Target(3, 13):
        known = one_of("client-local", "balanced", "random", "least-leaders", "min-masters")
        return Row(known, row.types | _CLASSIC)
    if name == "x-queue-type" and target.empty_type_is_default:
        return Row(Wanted(row.wanted.words, one_of(*QUEUE_TYPES, "").judge), row.types)
    if name == "x-queue-mode" and target >= _4_3:
        return Row(row.wanted, row.types, checked=False)
    if name == "x-queue-version" and target >= _4_3:
        return Row(number_of(2), row.types)
    if name == "x-delivery-limit" and not target.negative_limit_is_none:
        return Row(whole(0), row.types, checked=False)
    return row
