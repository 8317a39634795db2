"""Who consumes, and from what: asked of the management API, which knows every connection's consumers."""

from __future__ import annotations

from topology.management import Management, segment


def consumer_counts(management: Management, vhost: str) -> dict[str, int | None]:
    """Consumers of each queue of the vhost, up to 5 s old; None where the broker does not say.

    Raises:
        ManagementError: no usable answer.
    """
    found = management.listed(f"/api/queues/{segment(vhost)}", {"columns": "name,consumers"})
    return {queue["name"]: queue.get("consumers") for queue in found}


def streams(management: Management, vhost: str) -> frozenset[str]:
    """Streams of the vhost, which cannot be drained.

    Raises:
        ManagementError: no usable answer.
    """
    found = management.listed(f"/api/queues/{segment(vhost)}", {"columns": "name,type"})
    return frozenset(queue["name"] for queue in found if queue.get("type") == "stream")


def unsettled_counts(management: Management, vhost: str) -> dict[str, int]:
    """Messages of each queue of the vhost that consumers have and did not settle, up to 5 s old.

    Raises:
        ManagementError: no usable answer.
    """
    columns = {"columns": "name,messages_unacknowledged"}
    found = management.listed(f"/api/queues/{segment(vhost)}", columns)
    return {queue["name"]: queue.get("messages_unacknowledged") or 0 for queue in found}
