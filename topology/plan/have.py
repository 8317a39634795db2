"""What one vhost of a live broker has, read through the management API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topology.declare import RIGHTS, ctl
from topology.lint.definitions import Exchange, Policy, Queue
from topology.management import Management, ManagementError, segment
from topology.releases import Release, parse_release

LISTING = {"disable_stats": "true", "enable_queue_totals": "true"}


@dataclass(frozen=True)
class HaveBinding:
    """`arguments` is whether it has some: ours have none."""

    source: str
    destination: str
    kind: str
    routing_key: str
    arguments: bool = False

    @property
    def text(self) -> str:
        with_arguments = " with arguments" if self.arguments else ""
        return f"{self.source} → {self.destination} ({self.routing_key}){with_arguments}"


@dataclass(frozen=True)
class Have:
    """The entities by name. None stands for what could not be seen, never for nothing.

    Attributes:
        version: the broker's, e.g. `3.10.8`.
        unseen: names of exchanges and queues of which only the existence is known.
        listed: whether `exchanges` and `queues` hold everything there is, not only what was asked for.
        messages: of queues, ready and unacknowledged, where known.
    """

    version: str
    exchanges: Mapping[str, Exchange]
    queues: Mapping[str, Queue]
    bindings: frozenset[HaveBinding] | None = None
    policies: tuple[Policy, ...] | None = None
    unseen: frozenset[str] = frozenset()
    listed: bool = True
    messages: Mapping[str, int] = field(default_factory=dict)

    def release(self) -> Release:
        """(major, minor)."""
        return parse_release(self.version)


def read(management: Management, vhost: str) -> Have:
    """Everything in the vhost. Any user with a management tag and a permission in the vhost may.

    Raises:
        ManagementError: as `Management` does; also where there is no such vhost.
    """
    path = segment(vhost)
    version = management.version()
    if management.get(f"/api/exchanges/{path}") is None:  # RabbitMQ 4 says the same of either
        raise ManagementError(
            f"{management.address} has no vhost {vhost!r}, or user {management.user!r} no right in it: "
            f"{ctl('add_vhost', vhost)}; {ctl('set_permissions', '-p', vhost, management.user, *RIGHTS)}"
        )
    queues = management.listed(f"/api/queues/{path}", LISTING)
    return Have(
        version,
        {each["name"]: _exchange(vhost, each) for each in management.listed(f"/api/exchanges/{path}")},
        {each["name"]: _queue(vhost, each) for each in queues},
        frozenset(
            HaveBinding(
                each["source"],
                each["destination"],
                each["destination_type"],
                each["routing_key"],
                bool(each["arguments"]),
            )
            for each in management.listed(f"/api/bindings/{path}")
            if each["source"]  # the default exchange's stand for the queues themselves
        ),
        tuple(
            _policy(vhost, each, operator)
            for kind, operator in (("policies", False), ("operator-policies", True))
            for each in management.listed(f"/api/{kind}/{path}")
        ),
        messages={each["name"]: each["messages"] for each in queues if "messages" in each},
    )


def _exchange(vhost: str, each: Mapping[str, Any]) -> Exchange:
    return Exchange(
        vhost,
        each["name"],
        each["type"],
        each["durable"],
        each["auto_delete"],
        each["internal"],
        each["arguments"],
    )


def _queue(vhost: str, each: Mapping[str, Any]) -> Queue:
    # RabbitMQ 3.10 shows no x-queue-type for a classic queue declared without, 4.3 does.
    arguments = {"x-queue-type": each["type"]} | each["arguments"]
    # An owner is told of exclusive queues, "exclusive" itself only with statistics.
    exclusive = bool(each.get("exclusive") or each.get("owner_pid_details"))
    return Queue(vhost, each["name"], each["durable"], each["auto_delete"], exclusive, arguments)


def _policy(vhost: str, each: Mapping[str, Any], operator: bool) -> Policy:
    return Policy(
        vhost,
        each["name"],
        each["pattern"],
        each["definition"],
        each.get("apply-to", "all"),
        each.get("priority", 0),
        operator,
    )
