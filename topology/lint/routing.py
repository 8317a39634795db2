"""Where an exchange takes messages, by their routing keys."""

from __future__ import annotations

from topology.lint.broker import Broker
from topology.lint.keys import Keys
from topology.lint.routed import Delivery, Loss, LossReason, Routing, Verdict, together
from topology.lint.routes import Routes

__all__ = ["Delivery", "Loss", "LossReason", "Routing", "Verdict", "route"]


def route(broker: Broker, vhost: str, exchange: str, keys: Keys) -> Routing:
    """Where messages with these keys go when they are published to, or dead-lettered into, that exchange.

    The headers `CC` and `BCC`, by which a message has more keys than one, are not followed.

    Raises:
        KeyError: no such virtual host.
    """
    routes = broker.derived(Routes)
    found = [routes.of(vhost, exchange, key) for key in sorted(keys, key=str)]
    if len(found) == 1:
        return found[0]
    certain = together(delivery for one in found for delivery in one.deliveries)
    reached = {delivery.queue for delivery in certain}
    possible = together(delivery for one in found for delivery in one.possible)
    return Routing(
        certain,
        tuple(loss for one in found for loss in one.losses),
        tuple(delivery for delivery in possible if delivery.queue not in reached),
        tuple(dict.fromkeys(why for one in found for why in one.undecided)),
    )
