"""What becomes of messages that an exchange is given: deliveries, losses, and what cannot be told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from topology.lint.keys import Keys

LossReason = Literal["exchange_missing", "no_binding", "destination_missing"]
Verdict = Literal["delivered", "partial", "lost", "undecided"]


@dataclass(frozen=True)
class Delivery:
    """One queue that gets a copy.

    Attributes:
        keys: the part of the keys that gets there. What reaches it through an alternate exchange may be told
            too wide, where the keys are patterns.
        path: the hops as words: `exchange 'dlx' (topic), key 'a.b'`, `binding 'a.*' to queue 'dlq'`.
        alternate: only an alternate exchange leads there.
        one_of: the exchange picks one of several, as a consistent-hash exchange does.
    """

    queue: str
    keys: Keys
    path: tuple[str, ...]
    alternate: bool = False
    one_of: bool = False


@dataclass(frozen=True)
class Loss:
    """Keys of which some lead to no queue. `example`: one that does not."""

    keys: Keys
    example: str
    reason: LossReason
    path: tuple[str, ...]


@dataclass(frozen=True)
class Routing:
    """Attributes:
    deliveries: certain ones, at most one per queue, in the order of their names.
    losses: certain ones, each tried with its example.
    possible: further copies that depend on the message's headers or on an unknown exchange type.
    undecided: why it cannot be told whether some keys arrive at all; empty when everything is known.
    """

    deliveries: tuple[Delivery, ...] = ()
    losses: tuple[Loss, ...] = ()
    possible: tuple[Delivery, ...] = ()
    undecided: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """`lost`: no key arrives anywhere; `partial`: some keys do not."""
        if self.losses:
            return "partial" if self.deliveries or self.undecided else "lost"
        return "undecided" if self.undecided else "delivered"


def together(deliveries: Iterable[Delivery]) -> tuple[Delivery, ...]:
    """One delivery per queue, with all its keys and the first path, a direct one before an alternate one."""
    by_queue: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        by_queue[delivery.queue].append(delivery)
    return tuple(_one(by_queue[queue]) for queue in sorted(by_queue))


def _one(deliveries: list[Delivery]) -> Delivery:
    best = min(deliveries, key=lambda delivery: delivery.alternate)
    if len(deliveries) == 1:
        return best
    keys: Keys = frozenset().union(*(delivery.keys for delivery in deliveries))
    one_of = all(delivery.one_of for delivery in deliveries)
    return Delivery(best.queue, keys, best.path, best.alternate, one_of)
