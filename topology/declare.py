"""Bring a topology to a broker. Declares only: never deletes, never purges."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pika
from pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from topology.address import AmqpAddress
from topology.entities import Entities
from topology.errors import (
    AccessRefusedError,
    BrokerUnreachableError,
    ConflictError,
    MissingError,
    TopologyError,
)

ACCESS_REFUSED = 403
NOT_FOUND = 404
PRECONDITION_FAILED = 406
RIGHTS = (".*", ".*", ".*")  # to configure, write, read


@contextmanager
def connection(address: AmqpAddress, name: str) -> Iterator[pika.BlockingConnection]:
    """A connection for a few synchronous calls.

    Raises:
        AccessRefusedError: the broker answers, and lets this user not in or not into this vhost.
        BrokerUnreachableError: none could be opened, or it was lost on the way.
    """
    try:
        opened = pika.BlockingConnection(address.pika_parameters(name))
    except ProbableAuthenticationError as error:
        raise AccessRefusedError(
            f"{address} does not let user {address.user!r} in: is the password right? "
            f"{ctl('authenticate_user', address.user)} tells"
        ) from error
    except ProbableAccessDeniedError as error:
        raise AccessRefusedError(
            f"{address}: {_words(error)}. A vhost is made with {ctl('add_vhost', address.vhost)}, "
            f"a user let in with {permissions(address)}"
        ) from error
    except (AMQPConnectionError, OSError) as error:
        raise BrokerUnreachableError(f"no connection to {address}: {_words(error)}") from error
    try:
        yield opened
    except AMQPConnectionError as error:
        raise BrokerUnreachableError(f"lost the connection to {address}: {_words(error)}") from error
    finally:
        if opened.is_open:
            opened.close()


def ctl(*arguments: str) -> str:
    """A command for an operator's shell."""
    return shlex.join(("rabbitmqctl", *arguments))


def permissions(address: AmqpAddress) -> str:
    """The command that gives the user every right in the vhost."""
    return ctl("set_permissions", "-p", address.vhost, address.user, *RIGHTS)


def broker_version(opened: pika.BlockingConnection) -> str:
    """As the broker tells every client, e.g. `3.10.8`."""
    return _server_property(opened, "version")


def cluster_name(opened: pika.BlockingConnection) -> str:
    """As the broker tells every client; "" where it does not."""
    return _server_property(opened, "cluster_name")


def _server_property(opened: pika.BlockingConnection, name: str) -> str:
    value = opened._impl.server_properties.get(name, "")  # pika shows them on other adapters only
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def apply(address: AmqpAddress, entities: Entities) -> None:
    """Declare every entity. Idempotent, and safe from several processes at once.

    Raises:
        BrokerUnreachableError: the broker is away.
        AccessRefusedError: the user may not configure one of them.
        ConflictError: an entity exists with other arguments. What came before it is declared by then.
    """
    with connection(address, "redrive-topology-apply") as opened:
        channel = opened.channel()
        for exchange in entities.exchanges:
            with _named(address, "exchange", exchange.name):
                channel.exchange_declare(
                    exchange.name, exchange.type, durable=True, arguments=dict(exchange.arguments)
                )
        for queue in entities.queues:
            with _named(address, "queue", queue.name):
                channel.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
        for binding in entities.bindings:
            with _named(address, "binding", binding.text):
                bind = channel.queue_bind if binding.kind == "queue" else channel.exchange_bind
                bind(binding.destination, binding.source, binding.routing_key)


@contextmanager
def _named(address: AmqpAddress, kind: str, name: str) -> Iterator[None]:
    try:
        yield
    except ChannelClosedByBroker as closed:
        text = f"{kind} {name}: {closed.reply_text}"
        if closed.reply_code == PRECONDITION_FAILED:
            raise ConflictError(text) from closed
        if closed.reply_code == NOT_FOUND:
            raise MissingError(text) from closed
        if closed.reply_code == ACCESS_REFUSED:
            raise AccessRefusedError(f"{text}. All rights in the vhost: {permissions(address)}") from closed
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
