"""What a vhost has, found over AMQP alone, where there is no management API. Creates nothing.

A passive declare tells only whether an entity is there. Its arguments show in the broker's refusal of a
declare that is wrong in itself, with an argument of an impossible value: a missing entity is not created
(406, invalid argument), an existing one is compared argument by argument until one differs (406, inequivalent
argument, with the value that it has). The impossible one is compared last: its turn means that all else is
equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from topology.address import AmqpAddress
from topology.declare import broker_version, connection
from topology.entities import Entities, Exchange, Queue
from topology.errors import TopologyError
from topology.field_checks import NAME_BYTES
from topology.lint.definitions import Exchange as HaveExchange
from topology.lint.definitions import Queue as HaveQueue
from topology.names import moving
from topology.plan.have import Have
from topology.plan.moving import HOLDS

NOT_FOUND, ACCESS_REFUSED, RESOURCE_LOCKED, PRECONDITION_FAILED = 404, 403, 405, 406
# Neither may be a number.
IMPOSSIBLE_QUEUE_ARGUMENT = "x-queue-leader-locator"
IMPOSSIBLE_EXCHANGE_ARGUMENT = "alternate-exchange"
IMPOSSIBLE = 1
# A queue of that type cannot have them, and so does not compare them.
QUORUM_ONLY = frozenset({"x-dead-letter-strategy", "x-delivery-limit"})
NOT_OF = {
    "classic": QUORUM_ONLY,
    "quorum": frozenset({"x-max-priority"}),
    "stream": QUORUM_ONLY
    | {
        *(
            "x-dead-letter-exchange",
            "x-dead-letter-routing-key",
            "x-max-priority",
            "x-message-ttl",
            "x-overflow",
        ),
        "x-single-active-consumer",
    },
}
PROPERTIES = ("type", "durable", "auto_delete", "internal")
_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for .* but current is "
    r"(?:none|(?:the value )?'(?P<value>.*?)'(?: of type '(?P<type>\w+)')?)$",
    re.DOTALL,
)

Attempt = Callable[[BlockingChannel], Any]


def probe(address: AmqpAddress, entities: Entities) -> Have:
    """Of the entities asked for alone; bindings and policies are not seen.

    Found true of RabbitMQ 3.10.8 and 4.3.6, for each argument of each queue type. Needs the permission to
    configure the entities; of those that the user may not configure only the existence is seen.

    Raises:
        BrokerUnreachableError: the broker is away.
        AccessRefusedError: it does not let this user in.
    """
    unseen: set[str] = set()
    with connection(address, "redrive-topology-plan") as opened:
        version = broker_version(opened)
        exchanges = _found(entities.exchanges, lambda want: _exchange(opened, address.vhost, want, unseen))
        queues = _found(
            (*entities.queues, *_holding(entities)), lambda want: _queue(opened, address.vhost, want, unseen)
        )
    return Have(version, exchanges, queues, unseen=frozenset(unseen), listed=False)


def _holding(entities: Entities) -> Iterator[Queue]:
    """What tells of migrations that were begun."""
    for queue in entities.queues:
        if len((name := moving(queue.name)).encode()) <= NAME_BYTES:
            yield Queue(name, HOLDS)


def _found(wanted: Iterable[Any], look: Callable[[Any], Any]) -> dict[str, Any]:
    return {want.name: found for want in wanted if (found := look(want)) is not None}


def _exchange(
    opened: pika.BlockingConnection, vhost: str, want: Exchange, unseen: set[str]
) -> HaveExchange | None:
    if _refusal(opened, lambda channel: channel.exchange_declare(want.name, passive=True), NOT_FOUND):
        return None
    have = HaveExchange(vhost, want.name, want.type, arguments=dict(want.arguments))
    properties: dict[str, Any] = {"type": want.type, "durable": True, "auto_delete": False, "internal": False}
    found = dict(want.arguments)

    def attempt(channel: BlockingChannel) -> None:
        given = dict(properties)
        channel.exchange_declare(
            want.name, given.pop("type"), arguments={IMPOSSIBLE_EXCHANGE_ARGUMENT: IMPOSSIBLE}, **given
        )

    if not _learn(opened, attempt, properties, found, IMPOSSIBLE_EXCHANGE_ARGUMENT):
        unseen.add(want.name)
        return have
    return HaveExchange(vhost, want.name, **properties, arguments=found)


def _queue(opened: pika.BlockingConnection, vhost: str, want: Queue, unseen: set[str]) -> HaveQueue | None:
    refused = _refusal(
        opened, lambda channel: channel.queue_declare(want.name, passive=True), NOT_FOUND, RESOURCE_LOCKED
    )
    if refused and refused.reply_code == RESOURCE_LOCKED:
        return HaveQueue(vhost, want.name, exclusive=True, arguments=dict(want.arguments))
    if refused:
        return None
    properties: dict[str, Any] = {"durable": True, "auto_delete": False}
    found: dict[str, Any] = dict(want.arguments)

    def attempt(channel: BlockingChannel) -> None:
        arguments = found | {IMPOSSIBLE_QUEUE_ARGUMENT: IMPOSSIBLE}
        channel.queue_declare(want.name, arguments=arguments, **properties)

    if not _learn(opened, attempt, properties, found, IMPOSSIBLE_QUEUE_ARGUMENT):
        unseen.add(want.name)
    for argument in NOT_OF.get(found["x-queue-type"], ()):
        found.pop(argument, None)
    return HaveQueue(vhost, want.name, **properties, arguments=found)


def _learn(
    opened: pika.BlockingConnection,
    attempt: Attempt,
    properties: dict[str, Any],
    arguments: dict[str, Any],
    impossible: str,
) -> bool:
    """Try again with each value that the broker has, until only the impossible one is left; False where
    the broker does not tell."""
    told: set[str] = set()
    while True:
        refused = _refusal(opened, attempt, PRECONDITION_FAILED, ACCESS_REFUSED)
        if refused is None:  # a classic queue of RabbitMQ 3.10 does not compare the impossible argument
            return True
        match = _INEQUIVALENT.search(refused.reply_text)
        if match is None or match["argument"] in told:
            return False
        argument = match["argument"]
        told.add(argument)
        value = _value(match)
        if argument in PROPERTIES:
            properties[argument] = value
        elif value is None and argument == "x-queue-type":
            arguments[argument] = "classic"
        elif value is None:
            arguments.pop(argument, None)
        else:
            arguments[argument] = value
        if argument == impossible:
            return True


def _value(match: re.Match[str]) -> str | int | bool | None:
    text = match["value"]
    if text in ("true", "false"):
        return bool(text == "true")
    if text is not None and match["type"] != "longstr" and re.fullmatch(r"-?\d+", text):
        return int(text)
    return text


def _refusal(
    opened: pika.BlockingConnection, attempt: Attempt, *expected: int
) -> ChannelClosedByBroker | None:
    channel = opened.channel()
    try:
        attempt(channel)
    except ChannelClosedByBroker as closed:
        if closed.reply_code not in expected:
            raise TopologyError(str(closed.reply_text)) from closed
        return closed
    channel.close()
    return None
