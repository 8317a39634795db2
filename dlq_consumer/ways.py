"""The connections of the process: for each vhost one to consume and one to publish."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dlq_consumer.broker_link import BrokerLink
from dlq_consumer.probes import ProbeAnswers
from topology.address import AmqpAddress
from topology.publisher import Publisher


@dataclass(frozen=True)
class Way:
    """To one vhost."""

    link: BrokerLink
    publisher: Publisher
    probes: ProbeAnswers


class Ways:
    """To every vhost that has a queue to drain."""

    def __init__(self, home: AmqpAddress, name: str) -> None:
        self._home = home
        self._name = name
        self._ways: dict[str, Way] = {}

    async def open(self, vhosts: Iterable[str]) -> None:
        """Begin to connect; also to the vhost of the process itself."""
        for vhost in dict.fromkeys((self._home.vhost, *vhosts)):
            address = replace(self._home, vhost=vhost)
            publisher = Publisher(address, f"{self._name}-publish")
            self._ways[vhost] = Way(
                BrokerLink(address, f"{self._name}-consume"), publisher, ProbeAnswers(publisher)
            )
            await publisher.start()

    @property
    def own(self) -> Way:
        return self._ways[self._home.vhost]

    @property
    def all(self) -> tuple[Way, ...]:
        return tuple(self._ways.values())

    def to(self, vhost: str) -> Way:
        """Raises KeyError for a vhost that was not opened."""
        return self._ways[vhost]

    async def close(self) -> None:
        for way in self._ways.values():
            await way.publisher.close()
            await way.link.close()
