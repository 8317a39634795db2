"""Dead-letter queues that lose their letters at a restart, or never get any."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker, VHost
from topology.lint.codes import found
from topology.lint.definitions import Queue
from topology.lint.finding import Finding
from topology.lint.roles import is_dead_letter_queue, named_dead_letter_queue, queues, roles
from topology.lint.words import exchange, listed
from topology.lint.words import queue as named


def dead_letter_queues(broker: Broker) -> Iterator[Finding]:
    """DLQ-TRANSIENT, DLQ-UNFED, DLX-TARGET-FULL."""
    known = roles(broker)
    for vhost, queue in queues(broker):
        if queue.exclusive or broker.queue_settings(queue).type.value == "stream":
            continue
        feeders = known.feeders.get((vhost.name, queue.name), [])
        if not queue.durable and is_dead_letter_queue(broker, vhost, queue):
            yield found(
                "DLQ-TRANSIENT",
                vhost.name,
                named(queue.name),
                "all dead letters here are gone when the node restarts: the queue is not durable",
                "declare it durable, as a quorum queue if it may be",
                (
                    f"dead letters of {listed(feeders)}" if feeders else named(queue.name),
                    "node restarts",
                    "lost",
                ),
            )
        if feeders:
            yield from _refusing(broker, vhost, queue, feeders)
        elif named_dead_letter_queue(queue.name):
            yield from _unfed(broker, vhost, queue)


def _unfed(broker: Broker, vhost: VHost, queue: Queue) -> Iterator[Finding]:
    known = roles(broker)
    sources = sorted({binding.source for binding in vhost.bindings_to_queue(queue.name)})
    if any((vhost.name, source) in known.alternates for source in sources):
        return
    if sources and vhost.name in known.undecided:
        return
    others = [source for source in sources if (vhost.name, source) not in known.users]
    if others:
        message = f"no queue dead-letters here: it gets only what is published to {listed(others)} by hand"
    elif sources:
        message = (
            f"no dead letter arrives: the keys that reach {listed(sources)} are not those it is bound with"
        )
    else:
        message = (
            "no dead letter arrives: nothing is bound to it, and no queue names it as its dead-letter key"
        )
    keys = listed(sorted({binding.routing_key for binding in vhost.bindings_to_queue(queue.name)}))
    yield found(
        "DLQ-UNFED",
        vhost.name,
        named(queue.name),
        message,
        "point the dead-letter exchange and key of the queue it is meant for at it, or delete it",
        (*(f"{exchange(source)}, bound with {keys}" for source in sources), "no dead letter takes this way"),
        severity="info" if others else None,
    )


def _refusing(broker: Broker, vhost: VHost, queue: Queue, feeders: list[str]) -> Iterator[Finding]:
    settings = broker.queue_settings(queue)
    limit = settings.max_length or settings.max_length_bytes
    if limit is None or settings.overflow == "drop-head":
        return
    sources = {name: broker.queue_settings(vhost.queues[name]).strategy for name in feeders}
    held = sorted(name for name, strategy in sources.items() if strategy == "at-least-once")
    # A full quorum queue takes them (tried on 3.10.8 and 4.3.6).
    lost = sorted(set(sources) - set(held)) if settings.type.value == "classic" else []
    if not held and not lost:
        return
    told = [f"dead letters of {listed(lost)} are lost"] if lost else []
    told += [f"those of {listed(held)} stay there unseen, tried again every 180 s"] if held else []
    yield found(
        "DLX-TARGET-FULL",
        vhost.name,
        named(queue.name),
        f"once it holds {limit.value:,} {'messages' if settings.max_length else 'bytes'} ({limit.origin}) "
        f"it refuses more ({settings.overflow}): {'; '.join(told)}",
        "remove the limit, drain the queue and alert on its length",
        (f"dead letters of {listed(feeders)}", f"{named(queue.name)}: full, {settings.overflow}"),
    )
