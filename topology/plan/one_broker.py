"""Whether both URLs name one broker: else policies go to one, and queues to the other."""

from __future__ import annotations

from topology.address import AmqpAddress
from topology.declare import cluster_name, connection
from topology.errors import TopologyError
from topology.management import Management


class TwoBrokersError(TopologyError):
    """The AMQP URL and the management URL are of different clusters."""


def check_one_broker(address: AmqpAddress, management: Management) -> None:
    """Compare the cluster's name as each side tells it.

    Raises:
        TwoBrokersError: they differ.
        BrokerUnreachableError, AccessRefusedError: as `connection` does.
        ManagementError: no usable answer.
    """
    answer = management.get("/api/cluster-name")
    managed = str(answer["name"]) if isinstance(answer, dict) and "name" in answer else ""
    with connection(address, "redrive-topology-apply") as opened:
        declared = cluster_name(opened)
    if managed and declared and managed != declared:
        raise TwoBrokersError(
            f"REDRIVE_AMQP_URL ({address}) is cluster {declared!r} and REDRIVE_MANAGEMENT_URL "
            f"({management.address}) is cluster {managed!r}: both must name one broker. Nothing was changed"
        )
