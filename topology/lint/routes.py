"""The walk from an exchange to queues: bindings, exchanges bound to exchanges, alternate exchanges."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from topology.lint.broker import Broker, VHost
from topology.lint.definitions import Binding
from topology.lint.keys import NONE, Keys, Pattern, exactly, smallest, subsumes, uncovered
from topology.lint.matching import BindingIndex, Headers, Hit
from topology.lint.routed import Delivery, Loss, LossReason, Routing, together


@dataclass(frozen=True)
class _Visit:
    """Keys that come to an exchange: those of `pattern` that no exchange before has taken, where it is an
    alternate one."""

    exchange: str
    pattern: Pattern
    path: tuple[str, ...] = ()
    alternate: bool = False
    certain: bool = True
    one_of: bool = False
    taken: tuple[Pattern, ...] = ()


@dataclass(frozen=True)
class _DeadEnd:
    """Keys of `pattern` end at an exchange: all but those that `taken` has. `example`: one of them."""

    reason: LossReason
    path: tuple[str, ...]
    pattern: Pattern
    taken: tuple[Pattern, ...]
    example: str


@dataclass
class _Trail:
    """What one walk has found. `circles`: came to an exchange a second time, which adds nothing."""

    deliveries: list[Delivery] = field(default_factory=list)
    possible: list[Delivery] = field(default_factory=list)
    dead_ends: list[_DeadEnd] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    circles: list[Pattern] = field(default_factory=list)


class Routes:
    """Routes of one broker, each made once."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._indexes: dict[tuple[str, str], BindingIndex] = {}
        self._known: dict[tuple[str, str, Pattern], Routing] = {}

    def of(self, vhost: str, exchange: str, pattern: Pattern, headers: Headers | None = None) -> Routing:
        if headers is not None:
            return self._route(self._broker.vhosts[vhost], exchange, pattern, headers)
        identity = (vhost, exchange, pattern)
        if identity not in self._known:
            self._known[identity] = self._route(self._broker.vhosts[vhost], exchange, pattern, None)
        return self._known[identity]

    def _route(self, vhost: VHost, exchange: str, pattern: Pattern, headers: Headers | None) -> Routing:
        if exchange == "":
            return _by_default(vhost, pattern)
        trail = self._walk(vhost, exchange, pattern, headers)
        deliveries = together(trail.deliveries)
        reached = {delivery.queue for delivery in deliveries}
        possible = tuple(one for one in together(trail.possible) if one.queue not in reached)
        if pattern.exact:
            losses: tuple[Loss, ...] = ()
            if not deliveries and not trail.undecided:
                nowhere = _DeadEnd(
                    "no_binding", (f"exchange '{exchange}' leads to no queue",), pattern, (), pattern.text
                )
                end = min(trail.dead_ends, key=lambda end: _WORST.index(end.reason), default=nowhere)
                losses = (Loss(frozenset({pattern}), pattern.text, end.reason, end.path),)
            undecided = () if deliveries else tuple(dict.fromkeys(trail.undecided))
            return Routing(deliveries, losses, possible, undecided)
        return self._of_pattern(vhost, exchange, pattern, trail, Routing(deliveries, (), possible))

    def _of_pattern(
        self, vhost: VHost, exchange: str, pattern: Pattern, trail: _Trail, known: Routing
    ) -> Routing:
        """A wide pattern may arrive in part: each loss that the patterns suggest is tried with one key."""
        undecided: dict[str, None] = {}
        for suspect, example in _suspects(pattern, trail):
            tried = self.of(vhost.name, exchange, exactly(example))
            if tried.losses:
                (loss,) = tried.losses
                found = Loss(frozenset({suspect}), example, loss.reason, loss.path)
                return Routing(known.deliveries, (found,), known.possible, tuple(undecided))
            undecided |= dict.fromkeys(tried.undecided)
        return Routing(known.deliveries, (), known.possible, tuple(undecided))

    def _walk(self, vhost: VHost, exchange: str, pattern: Pattern, headers: Headers | None) -> _Trail:
        trail = _Trail()
        visited: dict[str, list[_Visit]] = defaultdict(list)
        todo = deque([_Visit(exchange, pattern)])
        while todo:
            at = todo.popleft()
            if at.exchange not in vhost.exchanges:
                words = f"exchange '{at.exchange}' does not exist"
                # A missing alternate exchange is one more that catches nothing.
                reason: LossReason = "no_binding" if at.path else "exchange_missing"
                example = uncovered(at.pattern, at.taken) or ""
                trail.dead_ends.append(_DeadEnd(reason, (*at.path, words), at.pattern, at.taken, example))
                continue
            if len(visited) > _MOST_EXCHANGES:
                trail.undecided.append(f"more than {_MOST_EXCHANGES} exchanges pass it on")
                break
            if any(_includes(before, at) for before in visited[at.exchange]):
                trail.circles.append(at.pattern)
                continue
            visited[at.exchange].append(at)
            todo += self._leave(vhost, at, headers, trail)
        return trail

    def _leave(self, vhost: VHost, at: _Visit, headers: Headers | None, trail: _Trail) -> Iterable[_Visit]:
        """Everything that one exchange does with the messages."""
        index = self._index(vhost, at.exchange)
        path = (*at.path, f"exchange '{at.exchange}' ({index.routes_as}), key '{at.pattern}'")
        hits = index.hits(at.pattern, headers)
        yield from (onward for hit in hits for onward in _follow(hit, at, path, trail))
        unsure = [hit for hit in hits if not hit.certain]
        if unsure:
            trail.undecided.append(f"exchange '{at.exchange}' ({index.routes_as}) looks into the message")
        if any(hit.certain and at.pattern in hit.keys for hit in hits):
            return
        taken = (*at.taken, *index.covers(hits))
        missed = uncovered(at.pattern, taken)
        if missed is None:
            return
        alternate = self._broker.exchange_settings(vhost.exchanges[at.exchange]).alternate
        if alternate is None:
            dangling = index.dangling and not hits
            reason: LossReason = "destination_missing" if dangling else "no_binding"
            trail.dead_ends.append(_DeadEnd(reason, (*path, "no binding matches"), at.pattern, taken, missed))
            return
        words = f"no binding matches: alternate exchange '{alternate.value}' ({alternate.origin})"
        certain = at.certain and not unsure
        yield _Visit(alternate.value, at.pattern, (*path, words), True, certain, at.one_of, taken)

    def _index(self, vhost: VHost, exchange: str) -> BindingIndex:
        identity = (vhost.name, exchange)
        if identity not in self._indexes:
            # An alternate exchange "" has no bindings of its own: the implicit ones count only when it is
            # published to.
            declared = vhost.bindings_from(exchange) if exchange else ()
            bindings = [one for one in declared if _leads_somewhere(vhost, one)]
            kind = self._broker.exchange_settings(vhost.exchanges[exchange]).routes_as
            self._indexes[identity] = BindingIndex(kind, bindings, len(bindings) < len(declared))
        return self._indexes[identity]


# That one message passes. Each holds the whole way to it.
_MOST_EXCHANGES = 500
_WORST: tuple[LossReason, ...] = ("exchange_missing", "destination_missing", "no_binding")


def _by_default(vhost: VHost, pattern: Pattern) -> Routing:
    """The default exchange: the key names the queue."""
    keys: Keys = frozenset({pattern})
    path = f"default exchange, key '{pattern}'"
    if not pattern.exact:
        return Routing(undecided=("the default exchange takes each key to the queue of that name",))
    if pattern.text in vhost.queues:
        return Routing((Delivery(pattern.text, keys, (path, f"queue '{pattern}'")),))
    words = f"queue '{pattern}' does not exist"
    return Routing(losses=(Loss(keys, pattern.text, "destination_missing", (path, words)),))


def _suspects(pattern: Pattern, trail: _Trail) -> Iterator[tuple[Pattern, str]]:
    """Keys that may arrive nowhere, each with the pattern it is of."""
    for end in trail.dead_ends:
        yield end.pattern, end.example
    direct = [key for one in trail.deliveries if not one.alternate for key in one.keys]
    for end in trail.dead_ends:
        example = uncovered(end.pattern, [*end.taken, *direct])
        if example is not None:
            yield end.pattern, example
    for circle in dict.fromkeys([pattern] if trail.undecided else trail.circles):
        example = uncovered(circle, direct)
        if example is not None:
            yield circle, example


def _follow(hit: Hit, at: _Visit, path: tuple[str, ...], trail: _Trail) -> Iterable[_Visit]:
    binding = hit.binding
    certain, one_of = at.certain and hit.certain, at.one_of or hit.one_of
    onward = (*path, f"binding '{binding.routing_key}' to {binding.destination_type} '{binding.destination}'")
    if binding.destination_type == "queue":
        found = trail.deliveries if certain else trail.possible
        found.append(Delivery(binding.destination, hit.keys, onward, at.alternate, one_of))
        return
    for pattern in smallest(hit.keys) or NONE:
        yield _Visit(binding.destination, pattern, onward, at.alternate, certain, one_of)


def _includes(before: _Visit, now: _Visit) -> bool:
    return (
        (before.certain or not now.certain)
        and (not before.alternate or now.alternate)
        and (not before.taken or before.taken == now.taken)
        and subsumes(before.pattern, now.pattern)
    )


def _leads_somewhere(vhost: VHost, binding: Binding) -> bool:
    known = vhost.queues if binding.destination_type == "queue" else vhost.exchanges
    return binding.destination in known
