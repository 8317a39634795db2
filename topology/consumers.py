"""Who consumes: asked of the management API, which knows every connection's consumers."""

from __future__ import annotations

from topology.management import Management, segment


def consumer_counts(management: Management, vhost: str) -> dict[str, int | None]:
    """Consumers of each queue of the vhost, up to 5 s old; None where the broker does not say.

    Raises:
        ManagementError: no usable answer.
    """
    found = management.listed(f"/api/queues/{segment(vhost)}", {"columns": "name,consumers"})
    return {queue["name"]: queue.get("consumers") for queue in found}
