"""How safely dead letters are forwarded."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker
from topology.lint.codes import found
from topology.lint.finding import Finding
from topology.lint.roles import queues
from topology.lint.words import queue as named


def forwarding(broker: Broker) -> Iterator[Finding]:
    """ALO-OVERFLOW, ALO-NO-DLX, AT-MOST-ONCE."""
    for vhost, queue in queues(broker):
        settings = broker.queue_settings(queue)
        asked = settings.strategy_requested
        if settings.type.value == "quorum" and asked.value == "at-least-once":
            if settings.dlx is None:
                yield found(
                    "ALO-NO-DLX",
                    vhost.name,
                    named(queue.name),
                    f"at-least-once ({asked.origin}) does nothing: there is no dead-letter exchange, and "
                    "dead letters are dropped",
                    "set dead-letter-exchange and dead-letter-routing-key",
                    (named(queue.name), "no dead-letter exchange"),
                )
            elif settings.strategy != "at-least-once":
                yield found(
                    "ALO-OVERFLOW",
                    vhost.name,
                    named(queue.name),
                    f"at-least-once ({asked.origin}) is not in force: it needs "
                    f"{', '.join(settings.strategy_lacks)}. The broker falls back to at-most-once, and a "
                    "dead letter can be lost on its way",
                    "set overflow to reject-publish; a length limit is not needed",
                    (named(queue.name), f"overflow in force: {settings.overflow}", "at-most-once"),
                )
        elif settings.dlx is not None and not queue.exclusive and settings.type.value != "stream":
            how = (
                "classic queues know no other way"
                if settings.type.value == "classic"
                else "dead-letter-strategy is at-most-once"
            )
            yield found(
                "AT-MOST-ONCE",
                vhost.name,
                named(queue.name),
                "a dead letter is published without a confirm and removed at once: it is lost if the "
                f"target is not available at that moment ({how})",
                "use a quorum queue with dead-letter-strategy at-least-once and overflow reject-publish",
                (named(queue.name), "at-most-once"),
            )
