"""What a migration sees of one queue through the management API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topology.management import Management, segment


@dataclass(frozen=True)
class Bound:
    """One binding of a queue, with what has to be said to make or undo it."""

    source: str
    routing_key: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Held:
    """Messages by the broker's statistics, which lag. None where it has none yet.

    Attributes:
        dead: dead letters that their target has not confirmed.
        consumers: how many there were then.
        running: it has a leader that tells its statistics.
    """

    ready: int | None
    unacknowledged: int | None
    dead: int
    consumers: int
    running: bool

    @property
    def nothing(self) -> bool:
        return (self.ready, self.unacknowledged, self.dead) == (0, 0, 0)


class Sight:
    """Of one vhost. Every method raises ManagementError."""

    def __init__(self, management: Management, vhost: str) -> None:
        self._management, self._vhost = management, segment(vhost)

    def bindings(self, queue: str) -> tuple[Bound, ...]:
        """Those of exchanges with a name; of a missing queue none."""
        found = self._management.get(f"/api/queues/{self._vhost}/{segment(queue)}/bindings")
        return tuple(
            Bound(each["source"], each["routing_key"], each["arguments"])
            for each in found or ()
            if each["source"]
        )

    def held(self, queue: str) -> Held:
        found = self._management.get(f"/api/queues/{self._vhost}/{segment(queue)}") or {}
        return Held(
            found.get("messages_ready"),
            found.get("messages_unacknowledged"),
            int(found.get("messages_dlx") or 0),
            int(found.get("consumers") or 0),
            found.get("state") == "running" and found.get("messages_ready") is not None,
        )

    def is_there(self, queue: str) -> bool:
        return self._management.get(f"/api/queues/{self._vhost}/{segment(queue)}") is not None
