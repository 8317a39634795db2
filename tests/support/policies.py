"""The policies of a topology on a vhost, put there over the management API."""

from __future__ import annotations

from urllib.parse import quote

import httpx

from tests.support.vhosts import Vhost
from topology.entities import Entities, Policy


def put_policy(vhost: Vhost, policy: Policy) -> httpx.Response:
    path = f"/api/policies/{quote(vhost.vhost, safe='')}/{quote(policy.name, safe='')}"
    body = {
        "pattern": policy.pattern, "definition": policy.definition,
        "apply-to": policy.apply_to, "priority": policy.priority,
    }  # fmt: skip
    return vhost.management.put(path, json=body)


def put_policies(vhost: Vhost, entities: Entities) -> None:
    for policy in entities.policies:
        put_policy(vhost, policy).raise_for_status()
