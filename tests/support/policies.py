"""The policies of a topology on a vhost, put there over the management API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
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


@contextmanager
def somebodys(vhost: Vhost, pattern: str, *, kind: str = "policies", **definition: Any) -> Iterator[None]:
    """A policy `theirs` on queues, taken away at the end. The broker tells of it up to 5 s later."""
    path = f"/api/{kind}/{quote(vhost.vhost, safe='')}/theirs"
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    body = {"pattern": pattern, "definition": keys, "apply-to": "queues", "priority": 1}
    vhost.management.put(path, json=body).raise_for_status()
    try:
        yield
    finally:
        vhost.management.delete(path).raise_for_status()
