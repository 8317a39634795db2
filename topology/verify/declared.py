"""Does the broker have what the topology declares? Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from topology.entities import Entities
from topology.names import ladder_names, own_names
from topology.plan.changes import Difference
from topology.plan.compare import exchange_differences, has_binding, queue_differences
from topology.plan.have import Have
from topology.spec import Topology
from topology.verify.check import APPLY, Check, failed

MIGRATE = "Arguments cannot change in place; run: topology plan, then: topology migrate"


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


def check_entities(entities: Entities, have: Have, owners: Owners) -> Iterator[Check]:
    """A failed check for each exchange and queue that is missing or other than declared."""
    for exchange in entities.exchanges:
        exists = have.exchanges.get(exchange.name)
        other = None if exists is None else exchange_differences(exchange, exists)
        yield from _entity("exchange", exchange.name, other, owners)
    for queue in entities.queues:
        found = have.queues.get(queue.name)
        other = None if found is None else queue_differences(queue, found, have.release())
        yield from _entity("queue", queue.name, other, owners)


def check_bindings(entities: Entities, have: Have, owners: Owners) -> Iterator[Check]:
    """A failed check for each missing binding between what is there."""
    for binding in entities.bindings:
        targets: Mapping[str, object] = have.queues if binding.kind == "queue" else have.exchanges
        ends = binding.source in have.exchanges and binding.destination in targets
        if ends and not has_binding(have, binding):
            path = f"{binding.source} → {binding.destination} (binding {binding.routing_key!r})"
            about, owner = (binding.source,), owners.of(binding.source)
            yield failed(path, owner, "it is missing", APPLY, about=about)


def _entity(kind: str, name: str, other: Sequence[Difference] | None, owners: Owners) -> Iterator[Check]:
    """`other` is None where it is missing, empty where it is as declared."""
    path, owner = f"{kind} {name}", owners.of(name)
    if other is None:
        yield failed(path, owner, "it is missing", APPLY, about=(name,))
    elif other:
        reason = "; ".join(
            f"{each.argument} is {_shown(each.have)}, declared is {_shown(each.want)}" for each in other
        )
        yield failed(path, owner, reason, MIGRATE, about=(name,))


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)
