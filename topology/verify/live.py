"""What the broker says of itself and of one vhost, read through the management API."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topology.entities import Entities
from topology.management import Management, ManagementRefusedError, segment
from topology.plan.have import Have, read
from topology.policy_harm import COLUMNS, InForce

# The broker collects a queue's statistics, its policies among them, every 5 s.
STATISTICS_S = 6.0
_COLUMNS = ",".join(("name", "state", "consumers", "members", "online", *COLUMNS, "messages_dlx"))


@dataclass(frozen=True)
class LiveQueue:
    name: str
    state: str
    consumers: int
    in_force: InForce
    stuck: int  # dead letters that it could not hand on: messages_dlx
    members: int
    online: int


@dataclass(frozen=True)
class Live:
    """What is declared, and how it does. `alarms` is None where we may not see them."""

    have: Have
    queues: Mapping[str, LiveQueue]
    alarms: tuple[str, ...] | None

    def policies(self, *, operator: bool) -> dict[str, Mapping[str, Any]]:
        """Definitions by name."""
        found = self.have.policies or ()
        return {policy.name: policy.definition for policy in found if policy.operator == operator}


def read_live(management: Management, vhost: str, entities: Entities) -> Live:
    """All of it. Waits up to 6 s for the statistics of queues that are new.

    Raises:
        ManagementError: no usable answer, or there is no such vhost.
    """
    return Live(
        read(management, vhost),
        _queues_with_statistics(management, vhost, {queue.name for queue in entities.queues}),
        _alarms(management),
    )


def read_queues(management: Management, vhost: str) -> dict[str, LiveQueue]:
    """The vhost's queues as the broker knows them now; its statistics may be 5 s old."""
    found = management.get(f"/api/queues/{segment(vhost)}", {"columns": _COLUMNS})
    return {queue["name"]: _queue(queue) for queue in found or []}


def _queues_with_statistics(management: Management, vhost: str, ours: set[str]) -> dict[str, LiveQueue]:
    deadline = time.monotonic() + STATISTICS_S
    while True:
        queues = read_queues(management, vhost)
        silent = [name for name in ours if name in queues and queues[name].in_force.effective is None]
        if not silent or time.monotonic() >= deadline:
            return queues
        time.sleep(0.5)


def _queue(found: Mapping[str, Any]) -> LiveQueue:
    return LiveQueue(
        name=found["name"],
        state=found.get("state", "running"),
        consumers=found.get("consumers", 0),
        in_force=InForce.of(found),
        stuck=found.get("messages_dlx") or 0,
        members=len(found.get("members") or ()),
        online=len(found.get("online") or ()),
    )


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
