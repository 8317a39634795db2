"""Entities as RabbitMQ's definitions, which `rabbitmqctl import_definitions` and the management API take.

https://www.rabbitmq.com/docs/definitions
"""

from __future__ import annotations

import json
from typing import Any

from topology.entities import Entities


def definitions(entities: Entities, vhost: str) -> dict[str, Any]:
    """Exchanges, queues, bindings and policies for one vhost, which has to exist.

    Sorted, so that two renderings differ only where the topologies do. The upload for a single vhost
    (`POST /api/definitions/<vhost>`) goes by its own vhost and reads over the one that is written here.
    """
    return {
        "exchanges": _sorted([
            {
                "name": exchange.name, "vhost": vhost, "type": exchange.type, "durable": True,
                "auto_delete": False, "internal": False, "arguments": dict(exchange.arguments),
            }
            for exchange in entities.exchanges
        ]),
        "queues": _sorted([
            {
                "name": queue.name, "vhost": vhost, "durable": True, "auto_delete": False,
                "arguments": dict(queue.arguments),
            }
            for queue in entities.queues
        ]),
        "bindings": _sorted([
            {
                "source": binding.source, "vhost": vhost, "destination": binding.destination,
                "destination_type": binding.kind, "routing_key": binding.routing_key, "arguments": {},
            }
            for binding in entities.bindings
        ]),
        "policies": _sorted([
            {
                "vhost": vhost, "name": policy.name, "pattern": policy.pattern, "apply-to": policy.apply_to,
                "definition": dict(policy.definition), "priority": policy.priority,
            }
            for policy in entities.policies
        ]),
    }  # fmt: skip


def definitions_text(entities: Entities, vhost: str) -> str:
    """The same as JSON, ending in a newline."""
    return json.dumps(definitions(entities, vhost), indent=2, sort_keys=True) + "\n"


def _sorted(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(objects, key=lambda each: json.dumps(each, sort_keys=True))
