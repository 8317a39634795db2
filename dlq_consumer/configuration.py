"""All that the process is told, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from dlq_consumer.channels.channel import Channel
from dlq_consumer.settings import AlertSettings, ConsumerSettings, KeepingSettings
from outbound.settings import CallbackSettings
from storage.alert_rules import AlertPolicy, Route
from storage.settings import StorageSettings
from topology.names import dead_letter_queues
from topology.settings import TopologySettings
from topology.spec import Topology
from topology.watched import Place


@dataclass(frozen=True)
class Configuration:
    """The settings of every part that the process has, and the topology they name."""

    storage: StorageSettings
    broker: TopologySettings
    management_url: str
    topology: Topology
    consumer: ConsumerSettings
    keeping: KeepingSettings
    alerts: AlertSettings
    channels: tuple[Channel, ...]
    callbacks: CallbackSettings

    @property
    def queues(self) -> tuple[Place, ...]:
        """Every queue to drain, each once."""
        home = self.broker.address.vhost
        own = (Place(home, queue) for queue in dead_letter_queues(self.topology))
        return tuple(dict.fromkeys((*own, *self.broker.watched)))

    @property
    def alert_policy(self) -> AlertPolicy:
        given = self.alerts
        return AlertPolicy(
            given.silence_seconds,
            given.rate_letters,
            given.rate_seconds,
            tuple(Route(channel.name, channel.takes_resolved) for channel in self.channels),
        )
