"""Which keys the messages in each queue can have, and which queue each dead letter goes to next."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import NamedTuple

from topology.lint.broker import Broker, VHost
from topology.lint.definitions import Queue
from topology.lint.keys import (
    ANY_PATTERN,
    NONE,
    Keys,
    Pattern,
    common,
    exactly,
    intersection,
    smallest,
    subsumes,
    topic,
)
from topology.lint.routed import Delivery, Routing
from topology.lint.routes import Routes

# Patterns of the dead letters in one queue. A chain of queues that each read one word of the key (a binary
# retry ladder) would double them at every step: beyond this they become one that holds them all.
_MOST_WIDE = 8
# From exchange to exchange before a queue.
_MOST_HOPS = 50


class Held(NamedTuple):
    """Messages with these keys in one queue."""

    vhost: str
    queue: str
    keys: Pattern


class Letters:
    """The dead-letter graph of a broker: found once, by following every key from where it enters.

    Keys enter by a queue's bindings, and by its own name where it has none. Exchanges that queues dead-letter
    to are fed by those queues: a wildcard bound to one says nothing of which keys come, so it only counts
    where no dead letter arrives.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routes = broker.derived(Routes)
        # Whether letters with all these keys come; False: the pattern is, or comes of, a widened one.
        self._held: dict[tuple[str, str], dict[Pattern, bool]] = defaultdict(dict)
        self._wide: dict[tuple[str, str], list[Pattern]] = defaultdict(list)
        self._widened: dict[tuple[str, str], Pattern] = {}
        self._todo: deque[Held] = deque()
        for vhost in broker.vhosts.values():
            self._follow_all(vhost)

    def held(self, queue: Queue) -> Keys:
        return frozenset(self._held[queue.vhost, queue.name])

    def unsure(self, queue: Queue) -> Keys:
        """Those of the held patterns that say more than the letters do: parts of them may never come."""
        held = self._held[queue.vhost, queue.name]
        return frozenset(pattern for pattern, sure in held.items() if not sure)

    def all(self) -> Iterator[Held]:
        for (vhost, queue), patterns in self._held.items():
            yield from (Held(vhost, queue, pattern) for pattern in patterns)

    def routing(self, held: Held) -> Routing | None:
        """Where these go when they are dead-lettered; None where the queue has no dead-letter exchange."""
        settings = self._broker.queue_settings(self._broker.vhosts[held.vhost].queues[held.queue])
        if settings.dlx is None:
            return None
        key = held.keys if settings.dead_letter_key is None else exactly(settings.dead_letter_key.value)
        return self._routes.of(held.vhost, settings.dlx.value, key)

    def following(self, held: Held) -> Iterator[tuple[Held, Delivery]]:
        """Every next place, those that are only possible included."""
        for place, delivery in self._next(held):
            widened = self._widened.get((place.vhost, place.queue))
            stands = widened is None or place.keys in self._held[place.vhost, place.queue]
            yield (place if stands or widened is None else place._replace(keys=widened)), delivery

    def _next(self, held: Held) -> Iterator[tuple[Held, Delivery]]:
        routing = self.routing(held)
        if routing is not None:
            for delivery in (*routing.deliveries, *routing.possible):
                yield from ((Held(held.vhost, delivery.queue, keys), delivery) for keys in delivery.keys)

    def _follow_all(self, vhost: VHost) -> None:
        entering = _Entering(self._broker, vhost)
        for wildcards, from_letters in ((True, False), (False, True)):
            self._enter(vhost, entering, wildcards=wildcards, from_letters=from_letters, if_empty=False)
        self._enter(vhost, entering, wildcards=True, from_letters=True, if_empty=True, everything=False)
        self._enter(vhost, entering, wildcards=True, from_letters=True, if_empty=True)

    def _enter(
        self,
        vhost: VHost,
        entering: _Entering,
        *,
        wildcards: bool,
        from_letters: bool,
        if_empty: bool,
        everything: bool = True,
    ) -> None:
        for queue in vhost.queues:
            if if_empty and self._held[vhost.name, queue]:
                continue
            for pattern, by_letters in entering.keys_of(queue):
                if (
                    by_letters is from_letters
                    and (wildcards or pattern.exact)
                    and (everything or pattern != ANY_PATTERN)
                ):
                    self._add(Held(vhost.name, queue, pattern), sure=True)
        while self._todo:
            at = self._todo.popleft()
            sure = self._held[at.vhost, at.queue].get(at.keys)
            if sure is not None:  # not widened meanwhile
                for place, _ in self._next(at):
                    narrow = place if place.keys.exact else self._narrow_enough(place)
                    self._add(narrow, sure and narrow.keys != self._widened.get((at.vhost, narrow.queue)))

    def _add(self, place: Held, sure: bool) -> None:
        patterns = self._held[place.vhost, place.queue]
        known = patterns.get(place.keys)
        if known is None or (sure and not known):
            patterns[place.keys] = sure
            self._todo.append(place)

    def _narrow_enough(self, place: Held) -> Held:
        """The place itself, or with one pattern instead of the many that have come there."""
        queue = (place.vhost, place.queue)
        widened, wide = self._widened.get(queue), self._wide[queue]
        if place.keys in self._held[queue]:
            return place
        if widened is not None and subsumes(widened, place.keys):
            return place._replace(keys=widened)
        wide.append(place.keys)
        if len(wide) <= _MOST_WIDE:
            return place
        self._widened[queue] = reduce(common, wide)
        for pattern in wide:
            self._held[queue].pop(pattern, None)
        self._wide[queue] = [self._widened[queue]]
        return place._replace(keys=self._widened[queue])


class _Entering:
    """The keys with which messages come to queues from publishers."""

    def __init__(self, broker: Broker, vhost: VHost) -> None:
        self._vhost = vhost
        self._kinds: Mapping[str, str] = {
            name: broker.exchange_settings(exchange).routes_as for name, exchange in vhost.exchanges.items()
        }
        self._into: dict[str, Keys] = {}
        self._fed_by_letters = _fed_by_letters(broker, vhost)

    def keys_of(self, queue: str) -> Iterator[tuple[Pattern, bool]]:
        """Each with whether it comes through an exchange that dead letters feed."""
        bound = [
            one for one in self._vhost.bindings_to_queue(queue) if one.source in self._kinds and one.source
        ]
        if not bound:
            yield exactly(queue), False
        for binding in bound:
            by_letters = binding.source in self._fed_by_letters
            taken = self._taken(binding.source, binding.routing_key)
            yield from ((pattern, by_letters) for pattern in taken)

    def _taken(self, exchange: str, key: str, hops: int = 0) -> Keys:
        """What a binding takes of what comes into its exchange."""
        kind = self._kinds[exchange]
        own = exactly(key) if kind == "direct" else topic(key) if kind == "topic" else ANY_PATTERN
        if own.exact:
            return frozenset({own})
        into = self._into_exchange(exchange, hops)
        return smallest(both for one in into for both in intersection(one, own)) or frozenset({own})

    def _into_exchange(self, exchange: str, hops: int) -> Keys:
        """Any key, or what the exchanges it is bound to take of theirs. In a circle, or far away: any key."""
        if exchange not in self._into:
            self._into[exchange] = frozenset({ANY_PATTERN})
            bound = [
                one
                for one in self._vhost.bindings_to_exchange(exchange)
                if one.source in self._kinds and one.source
            ]
            taken = (self._taken(binding.source, binding.routing_key, hops + 1) for binding in bound)
            if bound and hops < _MOST_HOPS:
                self._into[exchange] = smallest(NONE.union(*taken))
        return self._into[exchange]


def _fed_by_letters(broker: Broker, vhost: VHost) -> set[str]:
    """Dead-letter exchanges, and the exchanges that they pass messages on to."""
    settings = (broker.queue_settings(queue) for queue in vhost.queues.values())
    todo = {one.dlx.value for one in settings if one.dlx and one.dlx.value in vhost.exchanges}
    fed: set[str] = set()
    while todo:
        name = todo.pop()
        fed.add(name)
        onward = {one.destination for one in vhost.bindings_from(name) if one.destination_type == "exchange"}
        alternate = broker.exchange_settings(vhost.exchanges[name]).alternate
        if alternate:
            onward.add(alternate.value)
        todo |= {one for one in onward if one in vhost.exchanges and one not in fed}
    return fed
