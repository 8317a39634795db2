"""All that the process is told, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from dlq_consumer.alerting import Webhook
from dlq_consumer.settings import AlertSettings, ConsumerSettings
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
    alerts: AlertSettings

    @property
    def queues(self) -> tuple[Place, ...]:
        """Every queue to drain, each once."""
        home = self.broker.address.vhost
        own = (Place(home, queue) for queue in dead_letter_queues(self.topology))
        return tuple(dict.fromkeys((*own, *self.broker.watched)))

    @property
    def webhook(self) -> Webhook | None:
        url, secret = self.alerts.webhook_url, self.alerts.webhook_secret
        if url is None or secret is None:
            return None
        return Webhook(url.get_secret_value(), secret.get_secret_value(), self.alerts.timeout_s)
