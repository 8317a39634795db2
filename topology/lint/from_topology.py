"""A topology in code as definitions, so that it is linted by the same rules."""

from __future__ import annotations

from topology.entities import Entities
from topology.lint.definitions import Binding, Definitions, Exchange, Policy, Queue, VirtualHost

VHOST = "/"


def from_entities(entities: Entities, source: str) -> Definitions:
    """What `topology apply` would make of it, in a virtual host of its own."""
    return Definitions(
        source=source,
        origin="code",
        vhosts=(VirtualHost(VHOST),),
        queues=tuple(Queue(VHOST, queue.name, arguments=queue.arguments) for queue in entities.queues),
        exchanges=tuple(
            Exchange(VHOST, exchange.name, exchange.type, arguments=exchange.arguments)
            for exchange in entities.exchanges
        ),
        bindings=tuple(
            Binding(VHOST, binding.source, binding.destination, binding.kind, binding.routing_key)
            for binding in entities.bindings
        ),
        policies=tuple(
            Policy(
                VHOST,
                policy.name,
                policy.pattern,
                policy.definition,
                apply_to=policy.apply_to,
                priority=policy.priority,
            )
            for policy in entities.policies
        ),
    )
