"""Whether the dead letters of each queue arrive anywhere."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker, VHost
from topology.lint.codes import found
from topology.lint.definitions import Queue
from topology.lint.effective import QueueInForce
from topology.lint.fates import Fate
from topology.lint.finding import Finding
from topology.lint.keys import ANY_PATTERN, exactly
from topology.lint.roles import named_delay, queues, roles
from topology.lint.routing import Loss, route
from topology.lint.words import duration, exchange, listed, returned
from topology.lint.words import queue as named

# A delivery limit that no message reaches.
UNLIMITED_DELIVERIES = 1_000_000
STALLS = (
    "stays in the queue (at-least-once): it is tried again every 180 s, only messages_dlx in the "
    "management API shows it, and it holds up the letters behind it"
)


def dead_letter_routes(broker: Broker) -> Iterator[Finding]:
    """DLX-MISSING, DLX-UNROUTABLE, DLX-PARTIAL, DLX-ONLY-VIA-AE, DLX-UNDECIDED, DLX-KEY-VARIES."""
    letters = roles(broker).letters
    for vhost, queue in queues(broker):
        rejected = letters.get((vhost.name, queue.name))
        settings = broker.queue_settings(queue)
        if rejected is None or rejected.routing is None or settings.dlx is None:
            continue
        verdict = rejected.routing.verdict
        if verdict == "lost":
            yield _lost(vhost, queue, settings, rejected)
        elif verdict == "partial":
            yield _partial(broker, vhost, queue, settings, rejected)
        elif verdict == "undecided":
            yield found(
                "DLX-UNDECIDED",
                vhost.name,
                named(queue.name),
                f"where its dead letters go cannot be told from here: {rejected.routing.undecided[0]}",
                "none needed if it is meant; a queue that takes the rest can hang at an alternate "
                "exchange of " + exchange(settings.dlx.value),
                rejected.path,
            )
        elif all(delivery.alternate for delivery in rejected.routing.deliveries):
            yield _only_via_alternate(vhost, queue, settings, rejected)
        elif settings.dead_letter_key is None and vhost.bindings_to_queue(queue.name):
            yield from _by_name(broker, vhost, queue, settings.dlx.value)


def ways_out(settings: QueueInForce) -> str:
    """`rejected, or older than 15 s (argument x-message-ttl)`: when a message becomes a dead letter."""
    ways = ["rejected"]
    if settings.ttl_ms:
        ways.append(f"older than {duration(settings.ttl_ms.value)} ({settings.ttl_ms.origin})")
    limit = settings.max_length or settings.max_length_bytes
    if limit and settings.overflow != "reject-publish":
        ways.append(f"beyond the length limit ({limit.origin})")
    if settings.delivery_limit and settings.delivery_limit.value < UNLIMITED_DELIVERIES:
        ways.append(returned(settings.delivery_limit))
    return ", or ".join(ways)


def _lost(vhost: VHost, queue: Queue, settings: QueueInForce, rejected: Fate) -> Finding:
    assert settings.dlx is not None
    assert rejected.routing is not None
    loss = rejected.routing.losses[0]
    gone = STALLS if rejected.kind == "kept" else "is lost"
    what = f"each message that is {ways_out(settings)} {gone}"
    if loss.reason == "exchange_missing" and settings.dlx.value not in vhost.exchanges:
        return found(
            "DLX-MISSING",
            vhost.name,
            named(queue.name),
            f"{what}: {exchange(settings.dlx.value)} ({settings.dlx.origin}) does not exist",
            f"declare {exchange(settings.dlx.value)} and bind a dead-letter queue to it",
            (*rejected.path, *_fresh(rejected, loss)),
        )
    why = f"no binding of {exchange(settings.dlx.value)} takes key {loss.example!r}"
    if settings.dlx.value == "":
        why = f"there is no queue {loss.example!r}, which the default exchange would take it to"
    elif loss.reason == "destination_missing":
        why = f"what {exchange(settings.dlx.value)} leads to for key {loss.example!r} does not exist"
    return found(
        "DLX-UNROUTABLE",
        vhost.name,
        named(queue.name),
        f"{what}: {why}",
        _rebind(vhost, settings, loss.example),
        (*rejected.path, *_fresh(rejected, loss)),
    )


def _fresh(rejected: Fate, loss: Loss) -> tuple[str, ...]:
    return tuple(step for step in loss.path if step not in rejected.path)


def _rebind(vhost: VHost, settings: QueueInForce, key: str) -> str:
    assert settings.dlx is not None
    dlx = settings.dlx.value
    if dlx == "":
        return f"declare queue {key!r}, or set x-dead-letter-routing-key to the name of a queue that exists"
    fix = f"bind a dead-letter queue to {exchange(dlx)} with key {key!r}"
    taken = sorted({binding.routing_key for binding in vhost.bindings_from(dlx)})
    if taken and vhost.exchanges[dlx].type == "direct":
        where = settings.dead_letter_key.origin if settings.dead_letter_key else "x-dead-letter-routing-key"
        fix += f", or set the key ({where}) to one that is bound: {listed(taken)}"
    return fix


def _partial(broker: Broker, vhost: VHost, queue: Queue, settings: QueueInForce, rejected: Fate) -> Finding:
    assert settings.dlx is not None
    assert rejected.routing is not None
    loss = rejected.routing.losses[0]
    gone = STALLS if rejected.kind == "kept" else "is lost"
    # Through a fanout or headers exchange any key may come; which ones do is the publishers' affair. So is
    # what stands in the words of a key that a ladder of delay queues reads one by one.
    guess = named_delay(queue.name) or (
        ANY_PATTERN in loss.keys
        and not any(
            broker.exchange_settings(vhost.exchanges[binding.source]).routes_as == "topic"
            for binding in vhost.bindings_to_queue(queue.name)
            if binding.source in vhost.exchanges
        )
    )
    return found(
        "DLX-PARTIAL",
        vhost.name,
        named(queue.name),
        f"a message with key {loss.example!r}, say, that is {ways_out(settings)} {gone}: "
        f"{exchange(settings.dlx.value)} takes only {listed(_taken(rejected))}",
        "set x-dead-letter-routing-key, so that every dead letter has one key that is bound, or give "
        f"{exchange(settings.dlx.value) if settings.dlx.value else 'another dead-letter exchange'} an "
        "alternate exchange",
        (*rejected.path, *_fresh(rejected, loss)),
        severity="info" if guess else None,
    )


def _taken(rejected: Fate) -> list[str]:
    assert rejected.routing is not None
    return sorted({str(pattern) for delivery in rejected.routing.deliveries for pattern in delivery.keys})


def _only_via_alternate(vhost: VHost, queue: Queue, settings: QueueInForce, rejected: Fate) -> Finding:
    assert settings.dlx is not None
    assert rejected.routing is not None
    delivery = rejected.routing.deliveries[0]
    example = next(iter(sorted(map(str, delivery.keys))), "")
    return found(
        "DLX-ONLY-VIA-AE",
        vhost.name,
        named(queue.name),
        f"no binding of {exchange(settings.dlx.value)} takes key {example!r}: each message that is "
        f"{ways_out(settings)} ends in queue {delivery.queue!r}, where the alternate exchange leads, and "
        "not where the key was meant to lead",
        f"bind the queue that is meant to {exchange(settings.dlx.value)} with key {example!r}, or correct "
        "the key",
        (*rejected.path, *(step for step in delivery.path if step not in rejected.path)),
    )


def _by_name(broker: Broker, vhost: VHost, queue: Queue, dlx: str) -> Iterator[Finding]:
    """Celery, for one, binds a queue to an exchange and then publishes to the default exchange."""
    routing = route(broker, vhost.name, dlx, frozenset({exactly(queue.name)}))
    if routing.verdict == "lost":
        yield found(
            "DLX-KEY-VARIES",
            vhost.name,
            named(queue.name),
            f"a message that is published to the default exchange, to {named(queue.name)} by name, dies "
            f"with the key {queue.name!r}, which no binding of {exchange(dlx)} takes, and is lost",
            "set x-dead-letter-routing-key, so that all dead letters have one key",
            (
                f"default exchange, key {queue.name!r}",
                f"{named(queue.name)} rejects",
                *routing.losses[0].path,
            ),
        )
