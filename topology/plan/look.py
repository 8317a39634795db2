"""What a broker lacks, through its management API where its URL is set, else over AMQP alone."""

from __future__ import annotations

from topology.entities import Entities
from topology.management import Management
from topology.management_url import ManagementUrl
from topology.plan.changes import Plan
from topology.plan.compare import compare
from topology.plan.have import Have, read
from topology.plan.probe import probe
from topology.settings import TopologySettings


def look(settings: TopologySettings, entities: Entities) -> Have:
    """What there is. Never falls back from one way to the other.

    Raises:
        ManagementError: the management API's URL is set, and it gave no usable answer.
        BrokerUnreachableError: it is not set, and the broker is away.
        AccessRefusedError: it is not set, and the broker does not let the user in.
    """
    if settings.management_url is None:
        return probe(settings.address, entities)
    with Management(settings.management_url.get_secret_value()) as management:
        return read(management, settings.address.vhost)


def seen_at(settings: TopologySettings) -> str:
    """Where `look` looks, for messages: the two URLs may by mistake name two brokers."""
    if settings.management_url is None:
        return str(settings.address)
    url = ManagementUrl.parse(settings.management_url.get_secret_value())
    return f"{url.address} vhost {settings.address.vhost}"


def plan(settings: TopologySettings, entities: Entities) -> Plan:
    """`look`, compared with what is wanted. Raises as `look` does."""
    return compare(entities, look(settings, entities))
