"""One dead letter, several copies."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker
from topology.lint.codes import found
from topology.lint.finding import Finding
from topology.lint.roles import queues, roles
from topology.lint.rules.delays import same_key
from topology.lint.words import exchange, listed
from topology.lint.words import queue as named


def fan_out(broker: Broker) -> Iterator[Finding]:
    """DLX-FANS-OUT, FANOUT-KEYS-IGNORED."""
    known = roles(broker)
    for vhost, queue in queues(broker):
        letters = known.letters.get((vhost.name, queue.name))
        if letters is None or letters.routing is None:
            continue
        if copies := same_key(letters.routing.deliveries):
            yield found(
                "DLX-FANS-OUT",
                vhost.name,
                named(queue.name),
                f"each dead letter lands in {listed(copies)}: a replay from more than one of them works it "
                "twice",
                "bind one dead-letter queue for each key, on a direct exchange",
                letters.path,
            )
    for vhost in broker.vhosts.values():
        for one in vhost.exchanges.values():
            keys = sorted({binding.routing_key for binding in vhost.bindings_from(one.name)})
            if len(keys) > 1 and broker.exchange_settings(one).routes_as == "fanout":
                yield found(
                    "FANOUT-KEYS-IGNORED",
                    vhost.name,
                    exchange(one.name),
                    f"its bindings have {len(keys)} different keys ({listed(keys, 3)}), which a fanout "
                    "exchange ignores: every queue gets every message",
                    "declare it as a direct or topic exchange under another name, and bind the queues there",
                    (f"{exchange(one.name)} (fanout)", *(f"bound with key {key!r}" for key in keys[:3])),
                )
