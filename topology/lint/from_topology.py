"""A topology in code as definitions, so that it is linted by the same rules."""

from __future__ import annotations

from dataclasses import replace

from topology.entities import Entities
from topology.lint.definitions import Binding, Definitions, Exchange, Policy, Queue, VirtualHost
from topology.releases import Release, known_policies

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


def as_applied_to(definitions: Definitions, release: Release) -> tuple[Definitions, tuple[str, ...]]:
    """A topology in code as `topology apply` makes it on that release, and what it leaves out, in words."""
    policies, left_out = known_policies(definitions.policies, release)
    version = ".".join(map(str, release))
    return replace(definitions, policies=policies), tuple(
        f"RabbitMQ {version} does not know {key}: apply leaves it out of policy {name}"
        for name, key in left_out
    )
