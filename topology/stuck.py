"""Dead letters that the broker cannot hand on: a fault that only the management API shows."""

from __future__ import annotations

from topology.management import Management, segment


def stuck_letters(management: Management, vhost: str) -> dict[str, int]:
    """Per queue of the vhost how many dead letters have not reached their dead-letter exchange, where any.

    Those on their way are counted too, and the numbers are up to 5 s old: what stays is stuck. The broker
    tries again every 3 minutes. https://www.rabbitmq.com/docs/quorum-queues#dead-lettering

    Raises:
        ManagementError: no usable answer.
    """
    found = management.get(f"/api/queues/{segment(vhost)}", {"columns": "name,messages_dlx"})
    return {queue["name"]: count for queue in found or [] if (count := queue.get("messages_dlx") or 0)}
