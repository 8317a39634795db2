"""Bring a topology to a broker, or compare it with one. Declares only: never deletes, never purges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import pika
from pika.exceptions import AMQPConnectionError, AMQPError, ChannelClosedByBroker

from topology.address import AmqpAddress
from topology.entities import Entities
from topology.errors import BrokerUnreachableError, ConflictError, MissingError, TopologyError

NOT_FOUND = 404
PRECONDITION_FAILED = 406


@contextmanager
def connection(address: AmqpAddress, name: str) -> Iterator[pika.BlockingConnection]:
    """A connection for a few synchronous calls.

    Raises:
        BrokerUnreachableError: none could be opened, or it was lost on the way.
    """
    try:
        opened = pika.BlockingConnection(address.pika_parameters(name))
    except (AMQPConnectionError, OSError) as error:
        raise BrokerUnreachableError(f"no connection to {address}: {_words(error)}") from error
    try:
        yield opened
    except AMQPConnectionError as error:
        raise BrokerUnreachableError(f"lost the connection to {address}: {_words(error)}") from error
    finally:
        if opened.is_open:
            opened.close()


def apply(address: AmqpAddress, entities: Entities) -> None:
    """Declare every entity. Idempotent, and safe from several processes at once.

    Raises:
        BrokerUnreachableError: the broker is away.
        ConflictError: an entity exists with other arguments. What came before it is declared by then.
    """
    with connection(address, "redrive-topology-apply") as opened:
        channel = opened.channel()
        for exchange in entities.exchanges:
            with _named("exchange", exchange.name):
                channel.exchange_declare(
                    exchange.name, exchange.type, durable=True, arguments=dict(exchange.arguments)
                )
        for queue in entities.queues:
            with _named("queue", queue.name):
                channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
        for binding in entities.bindings:
            with _named("binding", f"{binding.source} → {binding.destination} ({binding.routing_key})"):
                bind = channel.queue_bind if binding.kind == "queue" else channel.exchange_bind
                bind(binding.destination, binding.source, binding.routing_key)


def missing(address: AmqpAddress, entities: Entities) -> list[str]:
    """The exchanges and queues that are not on the broker, found by passive declares.

    Bindings and arguments cannot be asked for that way; `apply` tells about conflicts.
    """
    with connection(address, "redrive-topology-check") as opened:
        exchanges = [e.name for e in entities.exchanges if not _exists(opened, "exchange", e.name)]
        queues = [q.name for q in entities.queues if not _exists(opened, "queue", q.name)]
    return [f"exchange {name}" for name in exchanges] + [f"queue {name}" for name in queues]


def _exists(opened: pika.BlockingConnection, kind: Literal["exchange", "queue"], name: str) -> bool:
    channel = opened.channel()
    try:
        declare = channel.exchange_declare if kind == "exchange" else channel.queue_declare
        declare(name, passive=True)
    except ChannelClosedByBroker as closed:
        if closed.reply_code == NOT_FOUND:
            return False
        raise
    channel.close()
    return True


@contextmanager
def _named(kind: str, name: str) -> Iterator[None]:
    try:
        yield
    except ChannelClosedByBroker as closed:
        text = f"{kind} {name}: {closed.reply_text}"
        if closed.reply_code == PRECONDITION_FAILED:
            raise ConflictError(text) from closed
        if closed.reply_code == NOT_FOUND:
            raise MissingError(text) from closed
        raise TopologyError(text) from closed
    except AMQPConnectionError:
        raise
    except AMQPError as error:
        raise TopologyError(f"{kind} {name}: {_words(error)}") from error


def _words(error: BaseException) -> str:
    """pika's connection errors often have no text of their own, only a cause."""
    for candidate in (error, *error.args, error.__cause__, error.__context__):
        text = str(candidate or "").strip()
        if text and text not in ("()", type(candidate).__name__):
            return text
    return type(error).__name__
