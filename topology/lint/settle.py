"""One message, followed until it rests: what a real broker would do with it, step by step."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from topology.lint.broker import Broker, VHost
from topology.lint.effective import QueueInForce
from topology.lint.keys import exactly
from topology.lint.routed import Delivery
from topology.lint.routes import Routes
from topology.lint.target import Target

LeaveWay = Literal["rejected", "expired", "maxlen", "delivery_limit"]
DropReason = Literal[
    "no_dlx",
    "dlx_missing",
    "unroutable",
    "cycle",
    "refused",  # by a full queue that rejects what is published to it
]

# A broken topology may copy without end in sight: then nothing is said.
_MOST_COPIES = 2_000
# A limit on bytes below this may or may not hold a message whose size is not known.
_ANY_MESSAGE = 1 << 20


@dataclass(frozen=True)
class Settled:
    """Attributes:
    resting: queue -> copies that lie there in the end.
    dropped: how often a copy vanished, and why.
    kept: queue -> copies that at-least-once cannot forward and keeps in that queue (its `messages_dlx`).
    undecided: why the outcome cannot be told; the other fields then hold what is certain.
    """

    resting: Counter[str] = field(default_factory=Counter)
    dropped: Counter[DropReason] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    undecided: tuple[str, ...] = ()


def settle(
    broker: Broker,
    vhost: str,
    queue: str,
    key: str,
    way: LeaveWay,
    headers: Mapping[str, object] | None = None,
) -> Settled:
    """Where one message rests that lies alone in `queue`, carries `key`, and leaves in that way.

    Every other queue is empty and has no consumer; queues with a TTL pass it on in time. A way in which
    nothing can leave that queue is undecided. `expired` needs no TTL: a message may carry its own expiration.

    Args:
        headers: the message's own, for headers exchanges; None: not known, which makes these undecided.

    Raises:
        KeyError: no such virtual host or queue.
    """
    walk = _Walk(broker, broker.vhosts[vhost], headers)
    settings = walk.settings(queue)
    if settings.type.value == "stream":
        return Settled(undecided=(f"nothing leaves the stream '{queue}'",))
    if way == "maxlen" and settings.max_length is None and settings.max_length_bytes is None:
        return Settled(undecided=(f"queue '{queue}' has no length limit",))
    if way == "delivery_limit" and settings.delivery_limit is None:
        return Settled(undecided=(f"queue '{queue}' has no delivery limit",))
    if way == "maxlen" and settings.overflow == "reject-publish":
        walk.result.dropped["refused"] += 1
        return walk.result
    walk.leave(_Copy(queue, key), way)
    return walk.to_the_end()


@dataclass(frozen=True)
class _Copy:
    """A message in a queue. `deaths`: (queue, reason), each pair once, in the order of `x-death`."""

    queue: str
    key: str
    deaths: tuple[tuple[str, str], ...] = ()

    def died(self, reason: str, target: Target) -> tuple[tuple[str, str], ...]:
        """The newest comes first. Up to 3.12 each death turns the order of those before it round
        (rabbit_dead_letter:group_by_queue_and_reason): a rejection long past may then look as if it were the
        last but one, and a loop that the broker would have ended goes on."""
        death = (self.queue, reason)
        before = self.deaths[::-1] if target < Target(3, 13) else self.deaths
        return (death, *(other for other in before if other != death))


class _Walk:
    def __init__(self, broker: Broker, vhost: VHost, headers: Mapping[str, object] | None) -> None:
        self._broker, self._vhost, self._headers = broker, vhost, headers
        self._routes = broker.derived(Routes)
        self._arriving: deque[_Copy] = deque()
        self._undecided: dict[str, None] = {}
        self.result = Settled()

    def settings(self, queue: str) -> QueueInForce:
        return self._broker.queue_settings(self._vhost.queues[queue])

    def to_the_end(self) -> Settled:
        for _ in range(_MOST_COPIES):
            if not self._arriving:
                break
            self._arrive(self._arriving.popleft())
        if self._arriving:
            self._undecided[f"it still goes on after {_MOST_COPIES} arrivals"] = None
        for name, copies in self.result.resting.items():
            room = _room(self.settings(name))
            if room is not None and copies > room:
                self._undecided[f"which of {copies} copies queue '{name}' has room for"] = None
        found = self.result
        return Settled(found.resting, found.dropped, found.kept, tuple(self._undecided))

    def _arrive(self, copy: _Copy) -> None:
        settings = self.settings(copy.queue)
        if settings.type.value != "stream":
            if _holds_none(settings) and settings.overflow != "reject-publish":
                self.leave(copy, "maxlen")
                return
            if settings.max_length_bytes and settings.max_length_bytes.value < _ANY_MESSAGE:
                self._undecided[f"whether a message fits the length limit of queue '{copy.queue}'"] = None
            if settings.expires_ms:
                self._undecided[f"queue '{copy.queue}' expires"] = None
            if settings.ttl_ms:
                self.leave(copy, "expired")
                return
        self.result.resting[copy.queue] += 1

    def leave(self, copy: _Copy, reason: LeaveWay) -> None:
        settings = self.settings(copy.queue)
        if settings.dlx is None:
            self._drop("no_dlx", 1)
            return
        at_least_once = settings.strategy == "at-least-once"
        if settings.dlx.value not in self._vhost.exchanges:
            self._lost(copy, at_least_once, "dlx_missing")
            return
        key = copy.key if settings.dead_letter_key is None else settings.dead_letter_key.value
        routing = self._routes.of(self._vhost.name, settings.dlx.value, exactly(key), self._headers)
        targets = [delivery.queue for delivery in routing.deliveries]
        if routing.possible or routing.undecided or _chosen(routing.deliveries):
            names = ", ".join(sorted({one.queue for one in (*routing.deliveries, *routing.possible)}))
            self._undecided[f"which of {names} exchange '{settings.dlx.value}' chooses"] = None
            return
        deaths = copy.died(reason, self._broker.target)
        closed = [name for name in targets if closes_a_cycle(name, deaths)]
        going = [name for name in targets if name not in closed]
        # A letter under way counts toward the length of the queue that keeps it until it has arrived.
        itself = {copy.queue} if at_least_once and _holds_none(settings) else set[str]()
        full = [name for name in going if name in itself or _refuses(self.settings(name))]
        self._arriving += (_Copy(name, key, deaths) for name in going if name not in full)
        if not going:
            self._lost(copy, at_least_once, "cycle" if closed else "unroutable", max(len(closed), 1))
        elif at_least_once and full:
            self.result.kept[copy.queue] += 1
        else:
            self._drop("cycle", len(closed))
            self._drop("refused", len(full))

    def _lost(self, copy: _Copy, at_least_once: bool, reason: DropReason, copies: int = 1) -> None:
        if at_least_once:
            self.result.kept[copy.queue] += 1
        else:
            self._drop(reason, copies)

    def _drop(self, reason: DropReason, copies: int) -> None:
        if copies:
            self.result.dropped[reason] += copies


def closes_a_cycle(target: str, deaths: Sequence[tuple[str, str]]) -> bool:
    """Whether the broker refuses a dead letter to `target` (mc:is_death_cycle; rabbit_dead_letter:is_cycle on
    3.10): it died there before, and no death that `x-death` lists up to that one was a rejection."""
    for queue, reason in deaths:
        if reason == "rejected":
            return False
        if queue == target:
            return True
    return False


def _holds_none(settings: QueueInForce) -> bool:
    limits = (settings.max_length, settings.max_length_bytes)
    return any(limit is not None and limit.value == 0 for limit in limits)


def _room(settings: QueueInForce) -> int | None:
    """Messages that rest there; a quorum queue that rejects takes one more before it does."""
    if settings.max_length is None:
        return None
    late = settings.type.value == "quorum" and settings.overflow == "reject-publish"
    return settings.max_length.value + late


def _refuses(settings: QueueInForce) -> bool:
    """A quorum queue refuses only once it is over its limit: at 0 it takes a message (3.10.8, 4.3)."""
    return (
        settings.overflow == "reject-publish" and _holds_none(settings) and settings.type.value == "classic"
    )


def _chosen(deliveries: Sequence[Delivery]) -> bool:
    return len(deliveries) > 1 and any(delivery.one_of for delivery in deliveries)
