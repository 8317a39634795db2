"""Definitions of a live broker, read through its management API.

https://www.rabbitmq.com/docs/management#http-api
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from topology.lint.definitions import Definitions
from topology.lint.read import from_tree
from topology.management import Management, ManagementError, ManagementRefusedError, segment

READ_TIMEOUT_S = 60.0  # a broker with 10,000 queues takes a few seconds
_QUEUE_COLUMNS = {"columns": "name,vhost,durable,auto_delete,exclusive,arguments,type,policy"}


@dataclass(frozen=True)
class LiveBroker:
    """What was read, and what this user may not see of the broker, a sentence each."""

    definitions: Definitions
    unseen: tuple[str, ...] = ()


def read_broker(url: str, vhost: str | None = None) -> LiveBroker:
    """Everything that the URL's user may see: as an administrator all, else the entities and policies of the
    virtual hosts that are open to that user.

    Args:
        url: `http(s)://user:password@host:15672`; guest:guest where it names no user.

    Raises:
        InvalidManagementUrlError: the URL is none of a management API.
        ManagementError: unreachable, refused, or no management API. No message quotes the password.
    """
    with Management(url, timeout_s=READ_TIMEOUT_S) as api:
        version = api.version()
        try:
            tree = api.get("/api/definitions")
            unseen: tuple[str, ...] = ()
            queues = api.listed("/api/queues", _QUEUE_COLUMNS)
        except ManagementRefusedError:
            tree, queues, closed = _composed(api, vhost)
            unseen = (
                f"user {api.user!r} is no administrator: users, shovels and upstreams were not read",
                *(f"virtual host {name!r} is closed to user {api.user!r}: not read" for name in closed),
            )
        if not isinstance(tree, dict):
            raise ManagementError(f"{api.address} gave no definitions")
        tree |= {"rabbitmq_version": version, "queues": _queues(tree.get("queues") or [], queues)}
        return LiveBroker(from_tree(_in_order(tree), api.address, origin="broker"), unseen)


def _in_order(tree: dict[str, Any]) -> dict[str, Any]:
    """Lists sorted: RabbitMQ 4 gives them in any order, and the same broker is to give the same report."""
    return {
        name: sorted(value, key=_place) if isinstance(value, list) else value for name, value in tree.items()
    }


def _place(entity: dict[str, Any]) -> tuple[str, str, str]:
    return str(entity.get("vhost")), str(entity.get("name")), json.dumps(entity, sort_keys=True)


def _queues(exported: list[Any], listed: list[Any]) -> list[Any]:
    """The exported queues with the policy in force, and the exclusive ones, which only the listing has."""
    known = {(queue.get("vhost"), queue.get("name")) for queue in exported}
    policies = {(queue.get("vhost"), queue.get("name")): queue.get("policy") for queue in listed}
    told = [{**queue, "policy": policies.get((queue.get("vhost"), queue.get("name")))} for queue in exported]
    return told + [
        _with_type(queue) for queue in listed if (queue.get("vhost"), queue.get("name")) not in known
    ]


def _with_type(queue: dict[str, Any]) -> dict[str, Any]:
    # A virtual host's default type may have changed since; what the queue is counts.
    arguments = {**(queue.get("arguments") or {})}
    if queue.get("type") not in (None, "classic"):
        arguments.setdefault("x-queue-type", queue["type"])
    return {**queue, "arguments": arguments}


def _composed(api: Management, only: str | None) -> tuple[dict[str, Any], list[Any], list[str]]:
    """An export without users and parameters, the listed queues, and the virtual hosts that are closed."""
    tree: dict[str, Any] = {
        name: [] for name in ("vhosts", "exchanges", "bindings", "policies", "parameters")
    }
    queues: list[Any] = []
    closed = []
    for vhost in api.listed("/api/vhosts"):
        if only not in (None, vhost["name"]):
            continue
        try:
            queues += _read_vhost(api, vhost["name"], tree)
            tree["vhosts"].append(vhost)
        except ManagementRefusedError:  # with the tag monitoring every virtual host is listed
            closed.append(vhost["name"])
    if not tree["vhosts"]:
        missing = "any virtual host" if only is None else f"the virtual host {only!r}, if there is one"
        raise ManagementRefusedError(
            f"{api.address}: user {api.user!r} may not see {missing}. Give it access: "
            f"rabbitmqctl set_permissions -p {only or 'VHOST'} {api.user} '' '' ''"
        )
    return tree, queues, closed


def _read_vhost(api: Management, vhost: str, tree: dict[str, Any]) -> list[Any]:
    """Its queues; all else is added to `tree`."""
    name = segment(vhost)
    queues = _listed(api, f"/api/queues/{name}", _QUEUE_COLUMNS)
    exchanges = _listed(api, f"/api/exchanges/{name}")
    # Every broker has the others.
    tree["exchanges"] += [one for one in exchanges if one["name"] and not one["name"].startswith("amq.")]
    bindings = _listed(api, f"/api/bindings/{name}")
    tree["bindings"] += [binding for binding in bindings if binding["source"]]
    tree["policies"] += _listed(api, f"/api/policies/{name}")
    tree["parameters"] += list(_operator_policies(_listed(api, f"/api/operator-policies/{name}")))
    return queues


def _listed(api: Management, path: str, columns: dict[str, str] | None = None) -> list[Any]:
    found = api.get(path, columns)
    if not isinstance(found, list):  # of a virtual host that is closed to the user, RabbitMQ 4 says 404
        raise ManagementRefusedError(f"{api.address} shows user {api.user!r} no {path}")
    return found


def _operator_policies(listed: list[Any]) -> Iterator[dict[str, Any]]:
    for policy in listed:
        value = {
            key: policy[key] for key in ("pattern", "apply-to", "definition", "priority") if key in policy
        }
        yield {
            "component": "operator_policy",
            "vhost": policy["vhost"],
            "name": policy["name"],
            "value": value,
        }
