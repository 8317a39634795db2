"""What the broker says of itself and of one vhost, read through the management API."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topology.entities import Binding, Entities
from topology.errors import MissingError
from topology.management import Management, ManagementRefusedError, segment

# The broker collects a queue's statistics, its policies among them, every 5 s.
STATISTICS_S = 6.0
_COLUMNS = (
    "name,type,durable,auto_delete,exclusive,arguments,state,consumers,members,online,policy,operator_policy,"
    "effective_policy_definition,messages_dlx"
)


@dataclass(frozen=True)
class LiveQueue:
    """`effective` is what the broker makes of all policies; None while it has not said so."""

    name: str
    type: str
    plain: bool  # durable, neither exclusive nor deleted by itself
    arguments: Mapping[str, Any]
    state: str
    consumers: int
    policy: str | None
    operator_policy: str | None
    effective: Mapping[str, Any] | None
    stuck: int  # dead letters that it could not hand on: messages_dlx
    members: int
    online: int


@dataclass(frozen=True)
class LiveExchange:
    name: str
    type: str
    plain: bool
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Live:
    """`policies` and `operator_policies` are definitions by name; `alarms` None where we may not see them."""

    version: str
    queues: Mapping[str, LiveQueue]
    exchanges: Mapping[str, LiveExchange]
    bindings: frozenset[Binding]
    policies: Mapping[str, Mapping[str, Any]]
    operator_policies: Mapping[str, Mapping[str, Any]]
    alarms: tuple[str, ...] | None

    @property
    def release(self) -> tuple[int, int]:
        major, minor = self.version.split(".")[:2]
        return int(major), int(minor)


def read_live(management: Management, vhost: str, entities: Entities) -> Live:
    """All of it. Waits up to 6 s for the statistics of queues that are new.

    Raises:
        MissingError: there is no such vhost.
        ManagementError: no usable answer.
    """
    version, place = management.version(), segment(vhost)
    if management.get(f"/api/vhosts/{place}") is None:
        raise MissingError(f"there is no vhost {vhost!r} on the broker")
    return Live(
        version=version,
        queues=_queues_with_statistics(management, vhost, {queue.name for queue in entities.queues}),
        exchanges={
            found["name"]: LiveExchange(found["name"], found["type"], _plain(found), _map(found["arguments"]))
            for found in management.get(f"/api/exchanges/{place}") or []
        },
        bindings=frozenset(
            Binding(found["source"], found["destination"], found["destination_type"], found["routing_key"])
            for found in management.get(f"/api/bindings/{place}") or []
        ),
        policies=_definitions(management, f"/api/policies/{place}"),
        operator_policies=_definitions(management, f"/api/operator-policies/{place}"),
        alarms=_alarms(management),
    )


def read_queues(management: Management, vhost: str) -> dict[str, LiveQueue]:
    """The vhost's queues as the broker knows them now; its statistics may be 5 s old."""
    found = management.get(f"/api/queues/{segment(vhost)}", {"columns": _COLUMNS})
    return {queue["name"]: _queue(queue) for queue in found or []}


def _queues_with_statistics(management: Management, vhost: str, ours: set[str]) -> dict[str, LiveQueue]:
    deadline = time.monotonic() + STATISTICS_S
    while True:
        queues = read_queues(management, vhost)
        silent = [name for name in ours if name in queues and queues[name].effective is None]
        if not silent or time.monotonic() >= deadline:
            return queues
        time.sleep(0.5)


def _queue(found: Mapping[str, Any]) -> LiveQueue:
    effective = found.get("effective_policy_definition")
    return LiveQueue(
        name=found["name"],
        type=found.get("type", "classic"),
        plain=_plain(found),
        arguments=_map(found.get("arguments")),
        state=found.get("state", "running"),
        consumers=found.get("consumers", 0),
        policy=found.get("policy") or None,
        operator_policy=found.get("operator_policy") or None,
        # Where no policy applies, older brokers say [] instead of {}.
        effective=None if effective is None else _map(effective),
        stuck=found.get("messages_dlx") or 0,
        members=len(found.get("members") or ()),
        online=len(found.get("online") or ()),
    )


def _plain(found: Mapping[str, Any]) -> bool:
    return bool(found.get("durable")) and not any(
        found.get(flag) for flag in ("auto_delete", "exclusive", "internal")
    )


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _definitions(management: Management, path: str) -> dict[str, Mapping[str, Any]]:
    try:
        return {found["name"]: _map(found["definition"]) for found in management.get(path) or []}
    except ManagementRefusedError:  # only their names are missing then, not what is in force
        return {}


def _alarms(management: Management) -> tuple[str, ...] | None:
    try:
        nodes = management.get("/api/nodes") or []
    except ManagementRefusedError:
        return None
    return tuple(
        f"{what} alarm on {node['name']}"
        for node in nodes
        for field, what in (("mem_alarm", "memory"), ("disk_free_alarm", "disk"))
        if node.get(field)
    )
