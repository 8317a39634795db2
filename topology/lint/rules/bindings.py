"""Bindings that lead nowhere, or not where they seem to."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker, VHost
from topology.lint.codes import found
from topology.lint.definitions import Binding
from topology.lint.finding import Finding
from topology.lint.roles import roles
from topology.lint.words import binding as named
from topology.lint.words import exchange, queue


def bindings(broker: Broker) -> Iterator[Finding]:
    """BINDING-DANGLING, BINDING-DEFAULT-X, DIRECT-WILDCARD, TOPIC-WILDCARD-LITERAL, HEADERS-MATCH-ALL."""
    for vhost in broker.vhosts.values():
        for binding in vhost.bindings:
            if binding.source == "":
                yield found(
                    "BINDING-DEFAULT-X",
                    vhost.name,
                    named(binding),
                    "the default exchange cannot be bound: it already routes every key to the queue of "
                    "that name",
                    "delete the binding",
                    (named(binding),),
                )
            elif missing := _missing(vhost, binding):
                yield found(
                    "BINDING-DANGLING",
                    vhost.name,
                    named(binding),
                    f"{missing} is not declared here: on a broker that does not have it RabbitMQ 3.10 "
                    "leaves the "
                    "binding out without a word, later versions fail the import, and what the binding was to "
                    "carry is dropped",
                    f"declare {missing}, or delete the binding",
                    (named(binding), f"{missing}: not declared"),
                )
            else:
                yield from _keys(broker, vhost, binding)


def _missing(vhost: VHost, binding: Binding) -> str | None:
    if binding.source not in vhost.exchanges:
        return exchange(binding.source)
    if binding.destination_type == "exchange":
        return None if binding.destination in vhost.exchanges else exchange(binding.destination)
    return None if binding.destination in vhost.queues else queue(binding.destination)


def _keys(broker: Broker, vhost: VHost, binding: Binding) -> Iterator[Finding]:
    source = vhost.exchanges[binding.source]
    kind = broker.exchange_settings(source).routes_as
    words = binding.routing_key.split(".")
    path = (f"{exchange(source.name)} ({source.type})", named(binding))
    if kind == "direct" and ("*" in words or "#" in words):
        yield found(
            "DIRECT-WILDCARD",
            vhost.name,
            named(binding),
            f"in a direct exchange {binding.routing_key!r} is a key like any other: only messages with "
            "exactly that key take it",
            "bind the exact keys, or use a topic exchange",
            path,
        )
    elif kind == "topic":
        literal = [word for word in words if len(word) > 1 and ("*" in word or "#" in word)]
        if literal:
            yield found(
                "TOPIC-WILDCARD-LITERAL",
                vhost.name,
                named(binding),
                f"a wildcard stands for whole words between dots: {literal[0]!r} matches only itself",
                "put dots around the wildcard",
                path,
            )
    elif (
        kind == "headers"
        and not any(
            not name.startswith("x-") or str(binding.arguments.get("x-match", "")).endswith("-with-x")
            for name in binding.arguments
            if name != "x-match"
        )
        and not str(binding.arguments.get("x-match", "all")).startswith("any")
    ):
        yield found(
            "HEADERS-MATCH-ALL",
            vhost.name,
            named(binding),
            "without header arguments the binding takes every message",
            "none needed if it is meant",
            path,
        )


def unbound_queues(broker: Broker) -> Iterator[Finding]:
    """QUEUE-UNBOUND."""
    feeders = roles(broker).feeders
    for vhost in broker.vhosts.values():
        for one in vhost.queues.values():
            fed = vhost.bindings_to_queue(one.name) or feeders.get((vhost.name, one.name))
            if not one.exclusive and not fed:
                yield found(
                    "QUEUE-UNBOUND",
                    vhost.name,
                    queue(one.name),
                    "only messages published to the default exchange with the queue's name reach it",
                    "none needed if publishers do that",
                    (f"{queue(one.name)}: no binding, no dead letters",),
                )
