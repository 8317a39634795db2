"""Dead letters that come back to where they were."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from topology.lint.broker import Broker
from topology.lint.components import components, sharing
from topology.lint.fates import Way, leaves_by, leaving
from topology.lint.letters import Held, Letters
from topology.lint.routed import Delivery

CycleKind = Literal["automatic", "rejection"]
AUTOMATIC: tuple[Way, ...] = ("expired", "maxlen", "delivery_limit")


@dataclass(frozen=True)
class Cycle:
    """Attributes:
    kind: `automatic`: every queue of the loop can be left without a consumer's reject, and the broker drops
        the message at its return (at-least-once: keeps it in the last queue); `rejection`: a reject keeps it
        going for ever.
    queues: all of the cycle (loops that share a queue are one cycle), sorted.
    loop: the queues of one shortest loop, in order.
    ways: how each queue of the loop can be left, the most automatic way first.
    by_delivery_limit: an automatic loop that closes only where a delivery limit is reached.
    path: that one loop as evidence: `queue 'work' rejects a message`, `exchange 'dlx' (direct), key 'work'`.
    """

    vhost: str
    kind: CycleKind
    queues: tuple[str, ...]
    loop: tuple[str, ...]
    ways: tuple[tuple[Way, ...], ...]
    by_delivery_limit: bool
    path: tuple[str, ...]


def cycles(broker: Broker) -> tuple[Cycle, ...]:
    """Every cycle of the dead-letter graph, by virtual host and queue names.

    An automatic cycle is a cycle through rejection as well, since a consumer may reject in any queue.
    """
    graph = _Graph(broker)
    by_itself: tuple[Way, ...] = ("expired", "maxlen")
    timed = graph.groups(lambda ways: any(way in by_itself for way in ways))
    limited = graph.groups(lambda ways: any(way in AUTOMATIC for way in ways))
    found = [graph.cycle("automatic", group, by_itself) for group in timed]
    known = {(cycle.vhost, name) for cycle in found for name in cycle.queues}
    for group in limited:
        if not any((part[0].vhost, held.queue) in known for part in group for held in part):
            found.append(graph.cycle("automatic", group, AUTOMATIC))  # noqa: PERF401
    found += (graph.cycle("rejection", group, ()) for group in graph.groups(lambda _: True))
    return tuple(sorted(found, key=lambda cycle: (cycle.vhost, cycle.queues, cycle.kind)))


_Group = list[list[Held]]


class _Graph:
    def __init__(self, broker: Broker) -> None:
        self._letters = broker.derived(Letters)
        self._ways: dict[tuple[str, str], tuple[Way, ...]] = {}
        for vhost in broker.vhosts.values():
            for queue in vhost.queues.values():
                settings = broker.queue_settings(queue)
                if settings.dlx is None:
                    continue
                ways = [way for way in AUTOMATIC if leaves_by(settings, way)]
                if settings.overflow == "reject-publish" and "maxlen" in ways:
                    ways.remove("maxlen")
                self._ways[vhost.name, queue.name] = (*ways, "rejected")
        self._causes = {
            (vhost.name, queue.name, way): leaves_by(broker.queue_settings(queue), way)
            for vhost in broker.vhosts.values()
            for queue in vhost.queues.values()
            for way in AUTOMATIC
        }
        # A queue that nothing dead-letters out of is on no cycle.
        self._edges: Mapping[Held, Sequence[tuple[Held, Delivery]]] = {
            held: list(self._letters.following(held))
            for held in self._letters.all()
            if (held.vhost, held.queue) in self._ways
        }

    def groups(self, counts: Callable[[tuple[Way, ...]], bool]) -> list[_Group]:
        """Strongly connected parts of the queues that count; parts that share a queue together."""
        nodes = [held for held in self._edges if counts(self._ways[held.vhost, held.queue])]
        allowed = set(nodes)

        def onward(held: Held) -> Iterator[Held]:
            return (place for place, _ in self._edges[held] if place in allowed)

        return sharing(components(nodes, onward), lambda held: (held.vhost, held.queue))

    def cycle(self, kind: CycleKind, group: _Group, automatic: Sequence[Way]) -> Cycle:
        part = min(group, key=lambda held: (len(held), held[0].queue))
        loop = self._loop(part)
        ways = tuple(self._ways[held.vhost, held.queue] for held, _ in loop)
        taken = [next((way for way in automatic if way in own), own[0]) for own in ways]
        if kind == "rejection" and "rejected" not in taken:
            taken[0] = "rejected"
        path: list[str] = []
        for (held, delivery), way in zip(loop, taken, strict=True):
            cause = self._causes.get((held.vhost, held.queue, way))
            path += (leaving(held.queue, way, cause), *delivery.path)
        return Cycle(
            vhost=part[0].vhost,
            kind=kind,
            queues=tuple(sorted({held.queue for one in group for held in one})),
            loop=tuple(held.queue for held, _ in loop),
            ways=ways,
            by_delivery_limit="delivery_limit" in automatic,
            path=tuple(path),
        )

    def _loop(self, part: Sequence[Held]) -> list[tuple[Held, Delivery]]:
        """A shortest way from one place back to it, each place with the delivery that leaves it."""
        start = min(part, key=lambda held: (held.queue, str(held.keys)))
        inside = set(part)
        came: dict[Held, tuple[Held, Delivery]] = {}
        todo = deque([start])
        while start not in came:
            at = todo.popleft()
            for place, delivery in self._edges[at]:
                if place in inside and place not in came:
                    came[place] = (at, delivery)
                    todo.append(place)
        loop = [came[start]]
        while loop[-1][0] != start:
            loop.append(came[loop[-1][0]])
        return loop[::-1]
