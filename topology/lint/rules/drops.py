"""Messages that leave a queue and are gone: no dead-letter exchange, or the queue itself goes."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker, VHost
from topology.lint.codes import found
from topology.lint.definitions import Queue
from topology.lint.effective import QueueInForce
from topology.lint.fates import fate
from topology.lint.finding import Finding
from topology.lint.roles import is_dead_letter_queue, queues
from topology.lint.rules.dead_letters import UNLIMITED_DELIVERIES
from topology.lint.words import duration, returned
from topology.lint.words import queue as named

KEEP = "set dead-letter-exchange and dead-letter-routing-key, by argument or policy"


def drops(broker: Broker) -> Iterator[Finding]:
    """Per queue: NO-DLX, DLX-KEY-ALONE, DROP-*, DLQ-*-DROP, DLQ-DELIVERY-LIMIT, QUEUE-EXPIRES,
    QUEUE-AUTO-DELETE, OVERFLOW-FALLBACK.
    """
    for vhost, queue in queues(broker):
        settings = broker.queue_settings(queue)
        # A temporary queue's messages end with it: that is what it was declared for.
        if queue.exclusive or settings.type.value == "stream" or (queue.auto_delete and not queue.durable):
            continue
        dead_letter_queue = is_dead_letter_queue(broker, vhost, queue)
        yield from _by_limits(broker, vhost, queue, settings, dead_letter_queue)
        yield from _with_the_queue(vhost, queue, settings)
        if settings.overflow_requested.value != settings.overflow:
            yield found(
                "OVERFLOW-FALLBACK",
                vhost.name,
                named(queue.name),
                f"{settings.overflow_requested.value} ({settings.overflow_requested.origin}) is not known "
                f"to {settings.type.value} queues: at the length limit the queue does {settings.overflow}",
                "set overflow to reject-publish, or accept drop-head and say so",
                (named(queue.name), f"overflow in force: {settings.overflow}"),
            )


def _by_limits(
    broker: Broker, vhost: VHost, queue: Queue, settings: QueueInForce, dead_letter_queue: bool
) -> Iterator[Finding]:
    entity = named(queue.name)
    if settings.ttl_ms and (expired := fate(broker, queue, "expired")).kind == "dropped":
        age = f"{duration(settings.ttl_ms.value)} ({settings.ttl_ms.origin})"
        if dead_letter_queue:
            yield found(
                "DLQ-TTL-DROP",
                vhost.name,
                entity,
                f"dead letters older than {age} are dropped: the queue has no dead-letter exchange of its "
                "own",
                "remove the TTL; drain the queue into a store that keeps them",
                expired.path,
            )
        else:
            yield found(
                "DROP-TTL",
                vhost.name,
                entity,
                f"messages that nobody took for {age} are dropped: there is no dead-letter exchange",
                KEEP,
                expired.path,
            )
    limit = settings.max_length or settings.max_length_bytes
    if limit and (over := fate(broker, queue, "maxlen")).kind == "dropped":
        unit = "messages" if settings.max_length else "bytes"
        size = f"{limit.value:,} {unit} ({limit.origin})"
        if dead_letter_queue:
            yield found(
                "DLQ-MAXLEN-DROP",
                vhost.name,
                entity,
                f"beyond {size} the oldest dead letters are dropped: overflow is {settings.overflow}, and "
                "there is no dead-letter exchange",
                "remove the limit; drain the queue and alert on its length",
                over.path,
            )
        else:
            yield found(
                "DROP-MAXLEN",
                vhost.name,
                entity,
                f"beyond {size} the queue drops messages: overflow is {settings.overflow}, and there is no "
                "dead-letter exchange",
                f"set overflow to reject-publish (publishers then learn of it by confirms), or {KEEP}",
                over.path,
            )
    returns = settings.delivery_limit
    if (
        returns
        and returns.value < UNLIMITED_DELIVERIES
        and (often := fate(broker, queue, "delivery_limit")).kind == "dropped"
    ):
        by_default = returns.origin.startswith("default")
        if dead_letter_queue:
            yield found(
                "DLQ-DELIVERY-LIMIT",
                vhost.name,
                entity,
                f"a dead letter that is {returned(returns)} is dropped: a drainer that crashes, or looking "
                "at it in the management UI, adds to the count",
                "set delivery-limit to 2000000000 (not -1: RabbitMQ 3.10 then drops at the first return)",
                often.path,
                severity=None if by_default else "warning",
                versions="4.0+" if by_default else None,
            )
        else:
            yield found(
                "DROP-DELIVERY-LIMIT",
                vhost.name,
                entity,
                f"a message that is {returned(returns)} is dropped: there is no dead-letter exchange",
                f"{KEEP}, or set delivery-limit to 2000000000",
                often.path,
                versions="4.0+" if by_default else None,
            )
    if (
        settings.dlx is None
        and settings.dead_letter_key
        and settings.dead_letter_key.origin.startswith("policy")
    ):
        key = settings.dead_letter_key
        yield found(
            "DLX-KEY-ALONE",
            vhost.name,
            entity,
            f"dead-letter key {key.value!r} ({key.origin}) does nothing: there is no dead-letter exchange, "
            "and a message that is rejected is dropped",
            f"add dead-letter-exchange to {key.origin}",
            (f"{key.origin}: dead-letter-routing-key {key.value!r}", "no dead-letter exchange"),
        )
    if settings.dlx is None and not dead_letter_queue:
        yield found(
            "NO-DLX",
            vhost.name,
            entity,
            "a message that a consumer rejects, or whose own expiration passes, is dropped: there is no "
            "dead-letter exchange",
            KEEP,
            fate(broker, queue, "rejected").path,
        )


def _with_the_queue(vhost: VHost, queue: Queue, settings: QueueInForce) -> Iterator[Finding]:
    if settings.expires_ms and not queue.auto_delete:
        idle = f"{duration(settings.expires_ms.value)} ({settings.expires_ms.origin})"
        yield found(
            "QUEUE-EXPIRES",
            vhost.name,
            named(queue.name),
            f"after {idle} without a consumer the queue is deleted with all its messages; none is "
            "dead-lettered, and publishing does not count as use",
            "remove expires from a queue whose messages matter",
            (named(queue.name), f"expires after {idle}", "deleted with its messages"),
        )
    if queue.auto_delete and queue.durable:
        yield found(
            "QUEUE-AUTO-DELETE",
            vhost.name,
            named(queue.name),
            "when the last consumer leaves, the queue is deleted with all its messages; none is "
            "dead-lettered",
            "declare it with auto_delete false",
            (named(queue.name), "the last consumer leaves", "deleted with its messages"),
        )
