"""What the broker checks when a queue, an exchange or a policy is declared."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.argument_table import QUEUE_TYPES, UNCHECKED, QueueType, Row, row_of
from topology.lint.definitions import Exchange, Queue
from topology.lint.policy_keys import check_policy, unsupported_keys
from topology.lint.problem import Problem, ProblemKind
from topology.lint.target import Target

__all__ = [
    "Problem",
    "ProblemKind",
    "QueueType",
    "check_exchange",
    "check_policy",
    "check_queue",
    "unsupported_keys",
]


def check_queue(queue: Queue, queue_type: QueueType, target: Target) -> tuple[Problem, ...]:
    """Everything wrong with a queue's arguments, in the order of their names, then its fields."""
    found = [
        problem
        for name in sorted(queue.arguments)
        for problem in _argument(name, queue.arguments[name], queue_type, target)
    ]
    arguments = queue.arguments
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        value = arguments["x-dead-letter-routing-key"]
        found.append(
            Problem(
                "incomplete", "x-dead-letter-routing-key", value, "x-dead-letter-exchange beside it", True
            )
        )
    if queue_type != "classic":
        wanted = (("durable", queue.durable, True), ("auto_delete", queue.auto_delete, False))
        found += (
            Problem("bad_value", name, value, f"{str(right).lower()} for a {queue_type} queue", True)
            for name, value, right in wanted
            if value is not right
        )
    return tuple(found)


def _argument(name: str, value: object, queue_type: QueueType, target: Target) -> Iterator[Problem]:
    row = row_of(name, target)
    if name in UNCHECKED:
        return
    if row is None:
        yield Problem("unknown", name, value, "an argument that RabbitMQ knows", False)
    elif queue_type not in row.types:
        for_types = " and ".join(kind for kind in QUEUE_TYPES if kind in row.types)
        yield Problem("unsupported", name, value, f"a {for_types} queue", True)
    elif name == "x-queue-master-locator" and target >= Target(4, 3):
        yield Problem("removed", name, value, "x-queue-leader-locator", True)
    else:
        yield from _value(name, value, queue_type, row, target)


def _value(name: str, value: object, queue_type: QueueType, row: Row, target: Target) -> Iterator[Problem]:
    verdict = row.wanted.judge(value)
    # The broker takes no null at all.
    refused = row.checked or value is None
    if verdict != "ok":
        yield Problem(verdict, name, value, row.wanted.words, refused)
    elif name == "x-queue-mode" and target >= Target(3, 12):
        yield Problem(
            "removed", name, value, "nothing: every classic queue keeps its messages on disk", False
        )
    elif name == "x-overflow" and queue_type == "quorum" and value == "reject-publish-dlx":
        yield Problem("unsupported", name, value, "drop-head or reject-publish", False)


BUILT_IN = frozenset({"direct", "fanout", "topic", "headers"})
PLUGINS = {
    "x-delayed-message": "rabbitmq_delayed_message_exchange",
    "x-consistent-hash": "rabbitmq_consistent_hash_exchange",
    "x-modulus-hash": "rabbitmq_sharding",
    "x-random": "rabbitmq_random_exchange",
    "x-recent-history": "rabbitmq_recent_history_exchange",
    "x-jms-topic": "rabbitmq_jms_topic_exchange",
    "x-federation-upstream": "rabbitmq_federation",
}


def check_exchange(exchange: Exchange, target: Target) -> tuple[Problem, ...]:
    """Everything wrong with an exchange's type and arguments. Other arguments belong to its type's plugin."""
    found = []
    kind = exchange.type
    if (kind == "x-local-random" and target >= Target(4, 0)) or (
        kind == "x-modulus-hash" and target >= Target(4, 3)
    ):
        pass
    elif plugin := PLUGINS.get(kind):
        found.append(Problem("plugin", "type", kind, f"the plugin {plugin}", False))
    elif kind not in BUILT_IN:
        known = "direct, fanout, topic, headers or a plugin's type"
        found.append(Problem("unknown", "type", kind, known, True))
    alternate = exchange.arguments.get("alternate-exchange")
    if "alternate-exchange" in exchange.arguments and not isinstance(alternate, str):
        found.append(Problem("wrong_type", "alternate-exchange", alternate, "an exchange's name", True))
    inner = exchange.arguments.get("x-delayed-type")
    if kind == "x-delayed-message" and not (isinstance(inner, str) and inner in BUILT_IN):
        what: ProblemKind = "incomplete" if inner is None else "bad_value"
        found.append(Problem(what, "x-delayed-type", inner, "direct, fanout, topic or headers", True))
    return tuple(found)
