"""A broker's definitions as frozen values, the way `rabbitmqctl export_definitions` writes them down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from topology.lint.finding import Finding

# Values as JSON has them: RabbitMQ checks their types only when it declares or imports.
Arguments = Mapping[str, object]


@dataclass(frozen=True)
class VirtualHost:
    name: str
    default_queue_type: str | None = None


@dataclass(frozen=True)
class Queue:
    """`exclusive` is known of a live broker only; a definitions file never holds such a queue. `policy` too:
    the name of the one that is in force, which settles a tie."""

    vhost: str
    name: str
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    arguments: Arguments = field(default_factory=dict)
    policy: str | None = None


@dataclass(frozen=True)
class Exchange:
    """`type` as written: direct, fanout, topic, headers, or a plugin's own."""

    vhost: str
    name: str
    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True)
class Binding:
    vhost: str
    source: str
    destination: str
    destination_type: Literal["queue", "exchange"] = "queue"
    routing_key: str = ""
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """A policy, or an operator policy. `pattern` is an unanchored regular expression."""

    vhost: str
    name: str
    pattern: str
    definition: Arguments
    apply_to: str = "all"
    priority: int = 0
    operator: bool = False


@dataclass(frozen=True)
class Parameter:
    """A runtime parameter: a shovel, a federation upstream. `value` is the component's own."""

    vhost: str
    component: str
    name: str
    value: object = None


@dataclass(frozen=True)
class User:
    """Never a password: only whether the file holds one in the clear."""

    name: str
    tags: tuple[str, ...] = ()
    plaintext_password: bool = False


@dataclass(frozen=True)
class Definitions:
    """Everything one broker, one file or one topology declares.

    Attributes:
        source: where it was read, for messages: a file's name, a URL without its password, `module:NAME`.
        origin: a definitions file, a live broker, or a topology in code.
        rabbitmq_version: of the broker that wrote it, where it says so.
        problems: what reading it found: fields of a wrong type, names that stand twice.
    """

    source: str
    origin: Literal["file", "broker", "code"] = "file"
    rabbitmq_version: str | None = None
    vhosts: tuple[VirtualHost, ...] = ()
    queues: tuple[Queue, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    bindings: tuple[Binding, ...] = ()
    policies: tuple[Policy, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    users: tuple[User, ...] = ()
    problems: tuple[Finding, ...] = ()
