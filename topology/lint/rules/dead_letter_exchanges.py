"""Exchanges that dead letters, or anything, go through in vain."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker, VHost
from topology.lint.codes import found
from topology.lint.definitions import Exchange
from topology.lint.finding import Finding
from topology.lint.roles import named_dead_letter_exchange, roles
from topology.lint.words import exchange as named
from topology.lint.words import listed


def exchanges_in_vain(broker: Broker) -> Iterator[Finding]:
    """DLX-UNBOUND, EXCHANGE-UNBOUND, DLX-UNUSED, DLX-AUTO-DELETE, DLX-TRANSIENT, AE-MISSING."""
    users = roles(broker).users
    for vhost in broker.vhosts.values():
        for exchange in vhost.exchanges.values():
            if exchange.name == "":
                continue
            using = users.get((vhost.name, exchange.name), [])
            if alternate := broker.exchange_settings(exchange).alternate:
                if alternate.value not in vhost.exchanges:
                    yield found(
                        "AE-MISSING",
                        vhost.name,
                        named(exchange.name),
                        f"what no binding takes is dropped: its alternate {named(alternate.value)} "
                        f"({alternate.origin}) does not exist",
                        f"declare {named(alternate.value)} and bind a queue to it",
                        (named(exchange.name), f"alternate {named(alternate.value)}: does not exist"),
                    )
            elif not vhost.bindings_from(exchange.name):
                yield from _unbound(vhost, exchange, using)
            if using:
                yield from _short_lived(vhost, exchange, using)
            else:
                yield from _unused(broker, vhost, exchange)


def _predeclared(exchange: Exchange) -> bool:
    return exchange.name.startswith("amq.")


def _unbound(vhost: VHost, exchange: Exchange, using: list[str]) -> Iterator[Finding]:
    path = (f"{named(exchange.name)} ({exchange.type}): no binding",)
    if using:
        yield found(
            "DLX-UNBOUND",
            vhost.name,
            named(exchange.name),
            f"every dead letter of {listed(using)} is lost here: the exchange has no binding",
            f"bind a dead-letter queue to {named(exchange.name)}",
            path,
        )
    elif not _predeclared(exchange):
        yield found(
            "EXCHANGE-UNBOUND",
            vhost.name,
            named(exchange.name),
            "what is published here without the mandatory flag is dropped: the exchange has no binding",
            "bind a queue, give the exchange an alternate exchange, or delete it",
            path,
        )


def _short_lived(vhost: VHost, exchange: Exchange, using: list[str]) -> Iterator[Finding]:
    path = (f"dead letters of {listed(using)}", f"{named(exchange.name)} ({exchange.type})")
    if exchange.auto_delete:
        yield found(
            "DLX-AUTO-DELETE",
            vhost.name,
            named(exchange.name),
            "once the last binding is gone the exchange is deleted, and the dead letters of "
            f"{listed(using)} are lost from then on",
            "declare it with auto_delete false",
            path,
        )
    lasting = [name for name in using if vhost.queues[name].durable]
    if not exchange.durable and lasting:
        yield found(
            "DLX-TRANSIENT",
            vhost.name,
            named(exchange.name),
            f"the exchange is gone after a restart, and {listed(lasting)} with its messages is not: their "
            "dead letters are lost from then on",
            "declare it durable",
            path,
        )


def _unused(broker: Broker, vhost: VHost, exchange: Exchange) -> Iterator[Finding]:
    if (
        not named_dead_letter_exchange(exchange.name)
        or (vhost.name, exchange.name) in roles(broker).alternates
        or vhost.bindings_to_exchange(exchange.name)
        or any(policy.definition.get("dead-letter-exchange") == exchange.name for policy in vhost.policies)
    ):
        return
    yield found(
        "DLX-UNUSED",
        vhost.name,
        named(exchange.name),
        "by its name this is a dead-letter exchange, yet no queue and no policy dead-letters to it",
        f"set dead-letter-exchange to {exchange.name!r} in a policy for the queues that are meant, or "
        "delete it",
        (named(exchange.name), "no queue has it as its dead-letter exchange"),
    )
