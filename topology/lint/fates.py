"""What becomes of the messages that leave a queue, for each way in which they can leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from topology.lint.broker import Broker
from topology.lint.definitions import Queue
from topology.lint.effective import QueueInForce, Setting, Strategy
from topology.lint.keys import Keys, exactly
from topology.lint.letters import Letters
from topology.lint.routing import Routing, route

Way = Literal[
    "rejected",
    "expired",  # by a TTL of the queue
    "message_expired",  # by an expiration of the message's own: any publisher may set one
    "maxlen",
    "delivery_limit",
    "queue_expiry",
    "node_loss",  # the node that holds the queue restarts
]
WAYS: tuple[Way, ...] = get_args(Way)
FateKind = Literal[
    "impossible",  # nothing leaves in this way
    "dead_lettered",  # see `routing`: parts of it, or all, may be lost there
    "dropped",  # no dead-letter exchange
    "kept",  # at-least-once and no target: stays in the queue, retried every 180 s
    "refused_to_publisher",  # reject-publish: the publisher's confirm says no
    "truncated",  # a stream's retention
    "deleted_with_queue",
    "lost_on_restart",
    "survives",
]


@dataclass(frozen=True)
class Fate:
    """Attributes:
    cause: the setting that makes messages leave in this way; None where a consumer or publisher does it.
    routing: of what is dead-lettered or kept; its `losses` are dropped (at-most-once) or kept in the source
        (at-least-once).
    path: evidence, from the queue to where it ends.
    """

    queue: Queue
    way: Way
    kind: FateKind
    strategy: Strategy
    cause: Setting[object] | None = None
    routing: Routing | None = None
    path: tuple[str, ...] = ()


def held_keys(broker: Broker, queue: Queue) -> Keys:
    """The routing keys that messages in a queue can have.

    From its bindings, and from dead letters that reach it; its own name where it has no binding.
    """
    return broker.derived(Letters).held(queue)


def fate(broker: Broker, queue: Queue, way: Way, keys: Keys | None = None) -> Fate:
    """What becomes of messages that leave the queue in that way. `keys`: theirs, else `held_keys`."""
    settings = broker.queue_settings(queue)
    cause = leaves_by(settings, way)
    kind = _without_letter(queue, settings, way, cause)
    leaves = leaving(queue.name, way, cause)
    if kind is not None:
        return Fate(
            queue, way, kind, settings.strategy, cause, path=() if kind == "impossible" else (leaves,)
        )
    if settings.dlx is None:
        nowhere = (leaves, "no dead-letter exchange")
        return Fate(queue, way, "dropped", settings.strategy, cause, path=nowhere)
    if settings.dead_letter_key is not None:
        keys = frozenset({exactly(settings.dead_letter_key.value)})
    routing = _route(broker, queue, settings.dlx.value, keys)
    kept = settings.strategy == "at-least-once" and routing.verdict == "lost"
    ends = [one.path for one in routing.losses]
    ends += [one.path for one in (*routing.deliveries, *routing.possible)]
    path = (leaves, *(ends[0] if ends else ()))
    return Fate(queue, way, "kept" if kept else "dead_lettered", settings.strategy, cause, routing, path)


def _route(broker: Broker, queue: Queue, dlx: str, keys: Keys | None) -> Routing:
    if keys is not None:
        return route(broker, queue.vhost, dlx, keys)
    keys, unsure = held_keys(broker, queue), broker.derived(Letters).unsure(queue)
    routing = route(broker, queue.vhost, dlx, keys)
    if not unsure or not routing.losses:
        return routing
    # Keys that may never come are no loss.
    known = route(broker, queue.vhost, dlx, keys - unsure)
    return replace(routing, losses=known.losses if routing.deliveries else routing.losses)


def leaves_by(settings: QueueInForce, way: Way) -> Setting[object] | None:
    """The setting by which messages leave in that way without anybody's doing, or None."""
    if way == "expired":
        return settings.ttl_ms or settings.max_age
    if way == "maxlen":
        return settings.max_length or settings.max_length_bytes
    if way == "delivery_limit":
        return settings.delivery_limit
    if way == "queue_expiry":
        return settings.expires_ms
    return None


def _without_letter(
    queue: Queue, settings: QueueInForce, way: Way, cause: Setting[object] | None
) -> FateKind | None:
    """The end of a way on which nothing is dead-lettered; None where the dead-letter exchange decides."""
    if way == "queue_expiry":
        return "deleted_with_queue" if cause else "impossible"
    if way == "node_loss":
        return "survives" if queue.durable else "lost_on_restart"
    if settings.type.value == "stream":
        return "truncated" if cause else "impossible"
    if way in ("rejected", "message_expired"):
        return None
    if cause is None:
        return "impossible"
    if way == "maxlen" and settings.overflow == "reject-publish":
        return "refused_to_publisher"
    return None


_LEAVES: dict[Way, str] = {
    "rejected": "rejects a message",
    "expired": "lets a message expire",
    "message_expired": "lets a message expire by its own expiration",
    "maxlen": "is full",
    "delivery_limit": "reaches its delivery limit with a message",
    "queue_expiry": "expires itself",
    "node_loss": "restarts with its node",
}
_UNITS: dict[Way, str] = {
    "expired": " ms",
    "maxlen": "",
    "delivery_limit": " returns",
    "queue_expiry": " ms unused",
}


def leaving(queue: str, way: Way, cause: Setting[object] | None) -> str:
    """The first step of a path: `queue 'q' lets a message expire (1000 ms by argument x-message-ttl)`."""
    words = f"queue {queue!r} {_LEAVES[way]}"
    if cause is None:
        return words
    unit = _UNITS.get(way, "") if isinstance(cause.value, int) else ""
    return f"{words} ({cause.value}{unit} by {cause.origin})"
