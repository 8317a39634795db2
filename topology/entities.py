"""A topology compiled to AMQP entities. The only place that writes an `x-` argument."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from topology.errors import InvalidTopologyError
from topology.ladder import end_key
from topology.names import UNROUTED, UNROUTED_DLQ, dlq, dlx, due, step
from topology.names import policy as policy_name
from topology.spec import Topology, WorkQueue

Argument = str | int | bool
# Never -1: RabbitMQ 3.10 then drops a message at its first return.
NO_DELIVERY_LIMIT = 2_000_000_000


@dataclass(frozen=True)
class Exchange:
    name: str
    type: Literal["direct", "fanout", "topic"]
    arguments: dict[str, Argument] = field(default_factory=dict)


@dataclass(frozen=True)
class Queue:
    """Always durable; its type is in the arguments."""

    name: str
    arguments: dict[str, Argument]

    @property
    def type(self) -> str:
        return str(self.arguments["x-queue-type"])


@dataclass(frozen=True)
class Binding:
    source: str
    destination: str
    kind: Literal["queue", "exchange"]
    routing_key: str

    @property
    def text(self) -> str:
        return f"{self.source} → {self.destination} ({self.routing_key})"


@dataclass(frozen=True)
class Policy:
    """Values that RabbitMQ advises to set by policy: they can change without a new queue.

    Only one policy applies to a queue, so its priority is above an operator's usual catch-all of 0.
    https://www.rabbitmq.com/docs/policies
    """

    name: str
    pattern: str
    definition: dict[str, Argument]
    apply_to: Literal["queues"] = "queues"
    priority: int = 10


@dataclass(frozen=True)
class Entities:
    """In the order in which they are to be declared: nothing refers to what comes after it."""

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]
    policies: tuple[Policy, ...] = ()


def compile_topology(topology: Topology, time_scale: float = 1.0) -> Entities:
    """Everything that has to be on the broker.

    Args:
        time_scale: multiplies the ladder's TTLs (names keep the nominal delay). For tests, in
            vhosts of their own.
    """
    exchanges = [Exchange(UNROUTED, "fanout")]
    queues = [_dead_letter_queue(UNROUTED_DLQ)]
    bindings = [Binding(UNROUTED, UNROUTED_DLQ, "queue", "")]
    shared: set[str] = set()
    for queue in topology.queues:
        parts = [_dead_letters(queue), _work(queue)]
        if queue.ladder.shared not in shared:
            parts.insert(1, _ladder(queue, time_scale))
        if queue.ladder.shared is not None:
            shared.add(queue.ladder.shared)
        for part in parts:
            exchanges += part.exchanges
            queues += part.queues
            bindings += part.bindings
    policies = [policy for queue in topology.queues if (policy := _policy(queue)) is not None]
    return Entities(tuple(exchanges), tuple(queues), tuple(bindings), tuple(policies))


def _at_least_once(exchange: str, routing_key: str | None = None) -> dict[str, Argument]:
    # The strategy needs a quorum queue and reject-publish; without these the broker falls back to
    # at-most-once without a word. https://www.rabbitmq.com/docs/quorum-queues#dead-lettering
    arguments: dict[str, Argument] = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": exchange,
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    if routing_key is not None:
        arguments["x-dead-letter-routing-key"] = routing_key
    return arguments


def _dead_letter_queue(name: str) -> Queue:
    # No TTL, no length limit, nothing that forgets.
    return Queue(name, {"x-queue-type": "quorum", "x-delivery-limit": NO_DELIVERY_LIMIT})


def _dead_letters(queue: WorkQueue) -> Entities:
    exchange = Exchange(dlx(queue.name), "direct", {"alternate-exchange": UNROUTED})
    return Entities(
        (exchange,),
        (_dead_letter_queue(dlq(queue.name)),),
        (Binding(exchange.name, dlq(queue.name), "queue", queue.name),),
    )


def _work(queue: WorkQueue) -> Entities:
    if queue.type == "quorum":
        arguments = _at_least_once(dlx(queue.name), queue.name)
        arguments["x-delivery-limit"] = queue.delivery_limit
    else:
        arguments = {
            "x-queue-type": "classic",
            "x-dead-letter-exchange": dlx(queue.name),
            "x-dead-letter-routing-key": queue.name,
        }
    if queue.max_priority is not None:
        arguments["x-max-priority"] = queue.max_priority
    if queue.single_active_consumer:
        arguments["x-single-active-consumer"] = True
    key = end_key(queue.ladder, queue.name)
    return Entities(
        (),
        (Queue(queue.name, arguments),),
        (Binding(due(queue.name, queue.ladder), queue.name, "queue", key),),
    )


def _policy(queue: WorkQueue) -> Policy | None:
    definition: dict[str, Argument] = {}
    if queue.message_ttl_s is not None:
        definition["message-ttl"] = round(queue.message_ttl_s * 1000)
    if queue.consumer_timeout_s is not None:
        definition["consumer-timeout"] = round(queue.consumer_timeout_s * 1000)
    if not definition:
        return None
    return Policy(policy_name(queue.name), f"^{re.escape(queue.name)}$", definition)


def _ladder(queue: WorkQueue, time_scale: float) -> Entities:
    ladder = queue.ladder
    exchanges = [Exchange(due(queue.name, ladder), "topic", {"alternate-exchange": UNROUTED})]
    queues, bindings = [], []
    after = due(queue.name, ladder)
    for number in range(ladder.steps):
        ttl_ms = round(ladder.step_ms(number) * time_scale)
        if ttl_ms < 1:
            raise InvalidTopologyError(
                f"queue {queue.name!r}: time scale {time_scale} leaves step {number} no TTL"
            )
        name = step(queue.name, ladder, number)
        exchanges.append(Exchange(name, "topic", {"alternate-exchange": UNROUTED}))
        # Keeps the routing key, so that the next exchange reads the next bit. A step's queue has no
        # delivery limit to reach, since nothing consumes it; set all the same, for RabbitMQ 4's default.
        arguments = _at_least_once(after)
        arguments |= {"x-message-ttl": ttl_ms, "x-delivery-limit": NO_DELIVERY_LIMIT}
        queues.append(Queue(name, arguments))
        stars = [ladder.shape, *["*"] * ladder.steps]
        place = ladder.steps - number
        bindings.append(
            Binding(name, name, "queue", ".".join([*stars[:place], "1", *stars[place + 1 :], "#"]))
        )
        bindings.append(
            Binding(name, after, "exchange", ".".join([*stars[:place], "0", *stars[place + 1 :], "#"]))
        )
        after = name
    return Entities(tuple(exchanges), tuple(queues), tuple(bindings))
