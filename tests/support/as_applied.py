"""A broker on which everything is as it should be, as `topology plan` would read it."""

from __future__ import annotations

from topology.entities import Entities
from topology.lint.definitions import Exchange, Policy, Queue
from topology.plan.have import Have, HaveBinding


def as_applied(entities: Entities, version: str = "4.3.6") -> Have:
    return Have(
        version,
        {e.name: Exchange("/", e.name, e.type, arguments=dict(e.arguments)) for e in entities.exchanges},
        {q.name: Queue("/", q.name, arguments=dict(q.arguments)) for q in entities.queues},
        frozenset(HaveBinding(b.source, b.destination, b.kind, b.routing_key) for b in entities.bindings),
        tuple(
            Policy("/", p.name, p.pattern, p.definition, p.apply_to, p.priority) for p in entities.policies
        ),
    )
