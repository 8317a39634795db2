"""What queues and exchanges are for: dead-letter queues, delay queues, dead-letter exchanges.

A name is a hint only: what hangs on it alone is never an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from topology.lint.broker import Broker, VHost
from topology.lint.definitions import Queue
from topology.lint.fates import Fate, fate
from topology.lint.routing import Routing

_DEAD_LETTER_QUEUE = re.compile(
    r"dlq|dead[-_. ]?letter|(?<![a-z])dead(?![a-z])|quarantine|poison|graveyard|morgue", re.IGNORECASE
)
_DEAD_LETTER_EXCHANGE = re.compile(r"(?<![a-z])dlx|dlx(?![a-z])|dead[-_. ]?letter", re.IGNORECASE)
_DELAY = re.compile(
    r"retry|retries|delay|backoff|(?<![a-z])(wait|waiting|defer|deferred|later)(?![a-z])", re.IGNORECASE
)


@dataclass
class Roles:
    """Of one broker. Names of queues and exchanges are (vhost, name).

    Attributes:
        letters: queue -> what becomes of the messages rejected there, where it has a dead-letter exchange.
        users: dead-letter exchange -> the queues that use it.
        feeders: queue -> the queues whose dead letters reach it.
        alternates: exchanges that are the alternate of another.
        undecided: virtual hosts in which some dead letters go where only the message itself can tell.
    """

    letters: dict[tuple[str, str], Fate] = field(default_factory=dict)
    users: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    feeders: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    alternates: set[tuple[str, str]] = field(default_factory=set)
    undecided: set[str] = field(default_factory=set)


def roles(broker: Broker) -> Roles:
    return broker.derived(_roles)


def _roles(broker: Broker) -> Roles:
    found = Roles()
    for vhost, queue in queues(broker):
        settings = broker.queue_settings(queue)
        if settings.dlx is None or settings.type.value == "stream":
            continue
        rejected = fate(broker, queue, "rejected")
        found.letters[vhost.name, queue.name] = rejected
        found.users.setdefault((vhost.name, settings.dlx.value), []).append(queue.name)
        routing = rejected.routing or Routing()
        if routing.undecided:
            found.undecided.add(vhost.name)
        for delivery in routing.deliveries:
            found.feeders.setdefault((vhost.name, delivery.queue), []).append(queue.name)
    for vhost in broker.vhosts.values():
        for exchange in vhost.exchanges.values():
            if alternate := broker.exchange_settings(exchange).alternate:
                found.alternates.add((vhost.name, alternate.value))
    return found


def queues(broker: Broker) -> Iterator[tuple[VHost, Queue]]:
    for vhost in broker.vhosts.values():
        for queue in vhost.queues.values():
            yield vhost, queue


def named_dead_letter_queue(name: str) -> bool:
    return _DEAD_LETTER_QUEUE.search(name) is not None


def named_dead_letter_exchange(name: str) -> bool:
    return _DEAD_LETTER_EXCHANGE.search(name) is not None


def named_delay(name: str) -> bool:
    return _DELAY.search(name) is not None


def is_dead_letter_queue(broker: Broker, vhost: VHost, queue: Queue) -> bool:
    """By its name; or dead letters are all that reaches it, and it passes none on."""
    if named_dead_letter_queue(queue.name):
        return True
    known = roles(broker)
    feeders = known.feeders.get((vhost.name, queue.name), [])
    if all(named_delay(name) for name in feeders) or (vhost.name, queue.name) in known.letters:
        return False
    return all((vhost.name, binding.source) in known.users for binding in vhost.bindings_to_queue(queue.name))
