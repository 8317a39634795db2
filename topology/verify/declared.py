"""Does the broker have what the topology declares? Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from topology.entities import Entities, Exchange, Queue
from topology.names import ladder_names, own_names
from topology.spec import Topology
from topology.verify.check import APPLY, Check, failed
from topology.verify.live import Live, LiveExchange, LiveQueue

MIGRATE = "Arguments need a new queue or exchange: move what is in it, delete it, and run: topology apply"


@dataclass(frozen=True)
class Owners:
    """Which work queue an entity serves; a shared ladder serves the first of its queues."""

    by_name: Mapping[str, str]

    @classmethod
    def in_(cls, topology: Topology) -> Owners:
        by_name = {name: queue.name for queue in topology.queues for name in own_names(queue)}
        for queue in topology.queues:
            for name in ladder_names(queue):
                by_name.setdefault(name, queue.name)
        return cls(by_name)

    def of(self, name: str) -> str:
        return self.by_name.get(name, "")


def check_entities(entities: Entities, live: Live, owners: Owners) -> Iterator[Check]:
    """A failed check for each exchange and queue that is missing or other than declared."""
    for exchange in entities.exchanges:
        yield from _entity("exchange", exchange, live.exchanges.get(exchange.name), owners)
    for queue in entities.queues:
        yield from _entity("queue", queue, live.queues.get(queue.name), owners)


def check_bindings(entities: Entities, live: Live, owners: Owners) -> Iterator[Check]:
    """A failed check for each missing binding between what is there."""
    for binding in entities.bindings:
        targets: Mapping[str, object] = live.queues if binding.kind == "queue" else live.exchanges
        ends = binding.source in live.exchanges and binding.destination in targets
        if ends and binding not in live.bindings:
            path = f"{binding.source} → {binding.destination} (binding {binding.routing_key!r})"
            about, owner = (binding.source,), owners.of(binding.source)
            yield failed(path, owner, "it is missing", APPLY, about=about)


def _entity(
    kind: str, want: Exchange | Queue, have: LiveExchange | LiveQueue | None, owners: Owners
) -> Iterator[Check]:
    if have is None:
        reason, fix = "it is missing", APPLY
    elif have.type != want.type or not have.plain:
        reason, fix = f"it is {have.type}, not a durable {want.type} {kind}", MIGRATE
    elif other := _difference(want.arguments, have.arguments):
        reason, fix = other, MIGRATE
    else:
        return
    yield failed(f"{kind} {want.name}", owners.of(want.name), reason, fix, about=(want.name,))


def _difference(want: Mapping[str, Any], have: Mapping[str, Any]) -> str:
    """In words, "" where there is none. A classic queue may say its type or leave it out."""
    names = sorted({*want, *have} - ({"x-queue-type"} if want.get("x-queue-type") == "classic" else set()))
    return "; ".join(
        f"{name} is {have.get(name, 'not set')!r}, declared is {want.get(name, 'none')!r}"
        for name in names
        if want.get(name) != have.get(name)
    )
