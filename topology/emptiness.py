"""Which queues hold nothing: asked of the management API, as only it counts what consumers have in hand."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from topology.management import Management, segment
from topology.names import dlq, ladder_names
from topology.spec import Topology

# Counts are up to so many seconds old.
STALE_S = 5.0
_COLUMNS = "name,messages,messages_dlx"


def empty_queues(management: Management, vhost: str) -> frozenset[str]:
    """Queues without any message: ready, unacknowledged, or on the way to their dead-letter exchange.

    A queue of which the broker does not say is left out.

    Raises:
        ManagementError: no usable answer.
    """
    found = management.listed(f"/api/queues/{segment(vhost)}", {"columns": _COLUMNS})
    return frozenset(queue["name"] for queue in found if _is_empty(queue))


def where_it_may_wait(topology: Topology, queue: str) -> Collection[str]:
    """The dead-letter queue and the retry ladder of a work queue; nothing for any other queue."""
    for work in topology.queues:
        if work.name == queue:
            _due, *steps = ladder_names(work)
            return (dlq(queue), *steps)
    return ()


def _is_empty(queue: dict[str, Any]) -> bool:
    return queue.get("messages") == 0 and not queue.get("messages_dlx")
