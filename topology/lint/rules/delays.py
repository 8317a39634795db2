"""Queues that delay: those that need a TTL of their own, and those that come back in several places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from topology.lint.broker import Broker
from topology.lint.codes import found
from topology.lint.fates import fate
from topology.lint.finding import Finding
from topology.lint.keys import intersects
from topology.lint.roles import is_dead_letter_queue, named_delay, queues, roles
from topology.lint.routing import Delivery
from topology.lint.words import duration, exchange, listed
from topology.lint.words import queue as named

# Pairs of targets looked at: enough to see that copies are made, without squaring a large fanout.
_PAIRS_OF = 40


def delays(broker: Broker) -> Iterator[Finding]:
    """DELAY-NO-TTL, RETRY-DUPLICATES."""
    known = roles(broker)
    for vhost, queue in queues(broker):
        letters = known.letters.get((vhost.name, queue.name))
        settings = broker.queue_settings(queue)
        if letters is None or letters.routing is None or settings.dlx is None or not named_delay(queue.name):
            continue
        back = [
            delivery
            for delivery in letters.routing.deliveries
            if delivery.queue in vhost.queues
            and not is_dead_letter_queue(broker, vhost, vhost.queues[delivery.queue])
        ]
        if settings.ttl_ms is None and back:
            yield found(
                "DELAY-NO-TTL",
                vhost.name,
                named(queue.name),
                "each message needs an expiration of its own: one with a short delay waits behind one with "
                "a long delay, since only the head of the queue expires, and one without stays for ever",
                "one queue for each delay, with message-ttl on the queue",
                fate(broker, queue, "message_expired").path,
            )
        copies = same_key(back)
        if settings.ttl_ms and copies:
            yield found(
                "RETRY-DUPLICATES",
                vhost.name,
                named(queue.name),
                f"after {duration(settings.ttl_ms.value)} the message comes back through "
                f"{exchange(settings.dlx.value)} as one copy each in {listed(copies)}: queues that had "
                "worked it get it again",
                "return through the default exchange with the queue's name as dead-letter key, or through "
                "an exchange of its own",
                letters.path,
            )


def same_key(deliveries: Sequence[Delivery]) -> list[str]:
    """The queues of which two get copies of one message, or nothing."""
    # What an alternate exchange takes, the bindings beside it do not.
    some = [delivery for delivery in deliveries if not delivery.alternate][:_PAIRS_OF]
    # An exchange that picks one of its bindings makes no copies.
    hit = {
        delivery.queue
        for number, one in enumerate(some)
        for other in some[number + 1 :]
        if not (one.one_of and other.one_of)
        and any(intersects(left, right) for left in one.keys for right in other.keys)
        for delivery in (one, other)
    }
    return sorted(hit)
