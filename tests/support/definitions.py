"""Definitions for the linter's tests, written short."""

from __future__ import annotations

from typing import Literal

from topology.lint.broker import Broker
from topology.lint.definitions import (
    Arguments,
    Binding,
    Definitions,
    Exchange,
    Policy,
    Queue,
    VirtualHost,
)
from topology.lint.target import NEWEST, Target

VHOST = "/"


def queue(name: str, **arguments: object) -> Queue:
    """Arguments without `x-` and with underscores: `message_ttl=1000`; also `durable`, `auto_delete`."""
    durable, auto_delete = bool(arguments.pop("durable", True)), bool(arguments.pop("auto_delete", False))
    return Queue(VHOST, name, durable, auto_delete, arguments=x_arguments(arguments))


def quorum(name: str, **arguments: object) -> Queue:
    return queue(name, queue_type="quorum", **arguments)


def x_arguments(arguments: Arguments) -> Arguments:
    return {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}


def exchange(name: str, kind: str = "direct", **arguments: object) -> Exchange:
    """`alternate` is the alternate exchange."""
    own = {"alternate-exchange": arguments.pop("alternate")} if "alternate" in arguments else {}
    return Exchange(VHOST, name, kind, arguments={**own, **x_arguments(arguments)})


def bind(
    source: str,
    destination: str,
    key: str = "",
    to: Literal["queue", "exchange"] = "queue",
    arguments: Arguments | None = None,
) -> Binding:
    return Binding(VHOST, source, destination, to, key, arguments or {})


def policy(name: str, pattern: str, definition: Arguments, **rest: object) -> Policy:
    return Policy(VHOST, name, pattern, definition, **rest)  # type: ignore[arg-type] # fields by name


def broker(
    *parts: Queue | Exchange | Binding | Policy,
    target: Target = NEWEST,
    default_queue_type: str | None = None,
) -> Broker:
    return Broker(
        Definitions(
            "test",
            vhosts=(VirtualHost(VHOST, default_queue_type),),
            queues=tuple(part for part in parts if isinstance(part, Queue)),
            exchanges=tuple(part for part in parts if isinstance(part, Exchange)),
            bindings=tuple(part for part in parts if isinstance(part, Binding)),
            policies=tuple(part for part in parts if isinstance(part, Policy)),
        ),
        target,
    )
