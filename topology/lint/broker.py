"""A broker as definitions would make it: indexed, with what is in force on every queue and exchange."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from topology.lint.definitions import Binding, Definitions, Exchange, Policy, Queue
from topology.lint.effective import (
    ExchangeInForce,
    QueueInForce,
    exchange_settings,
    queue_settings,
    queue_type,
)
from topology.lint.policies import Policies
from topology.lint.target import Target

T = TypeVar("T")

PREDECLARED = {
    "": "direct",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
    "amq.rabbitmq.trace": "topic",
}


@dataclass(frozen=True)
class VHost:
    """One virtual host. Everything by name; `exchanges` holds the predeclared ones too, the default exchange
    as `""`. Of duplicates the first counts, as in an import."""

    name: str
    queues: Mapping[str, Queue]
    exchanges: Mapping[str, Exchange]
    bindings: tuple[Binding, ...]
    policies: tuple[Policy, ...]
    default_queue_type: str | None = None

    @cached_property
    def _by_source(self) -> Mapping[str, Sequence[Binding]]:
        return _grouped((binding.source, binding) for binding in self.bindings)

    @cached_property
    def _by_destination(self) -> Mapping[tuple[str, str], Sequence[Binding]]:
        return _grouped(
            ((binding.destination_type, binding.destination), binding) for binding in self.bindings
        )

    def bindings_from(self, exchange: str) -> Sequence[Binding]:
        """As declared, dangling ones included; none from the default exchange's implicit bindings."""
        return self._by_source.get(exchange, ())

    def bindings_to_queue(self, queue: str) -> Sequence[Binding]:
        return self._by_destination.get(("queue", queue), ())

    def bindings_to_exchange(self, exchange: str) -> Sequence[Binding]:
        return self._by_destination.get(("exchange", exchange), ())


K = TypeVar("K")


def _grouped(pairs: Iterable[tuple[K, Binding]]) -> dict[K, list[Binding]]:
    groups: dict[K, list[Binding]] = defaultdict(list)
    for key, binding in pairs:
        groups[key].append(binding)
    return dict(groups)


_Identity = tuple[str, str, str, str, tuple[tuple[str, str], ...]]


@dataclass
class _Parts:
    queues: dict[str, Queue] = field(default_factory=dict)
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    bindings: dict[_Identity, Binding] = field(default_factory=dict)
    policies: list[Policy] = field(default_factory=list)


class Broker:
    """What the definitions make on an empty broker of the target version. Nothing here changes."""

    def __init__(self, definitions: Definitions, target: Target) -> None:
        self.definitions = definitions
        self.target = target
        self._derived: dict[Callable[[Broker], Any], Any] = {}
        self._queue_settings: dict[tuple[str, str], QueueInForce] = {}
        self._exchange_settings: dict[tuple[str, str], ExchangeInForce] = {}

    @cached_property
    def vhosts(self) -> Mapping[str, VHost]:
        """Also those that only an object names. All in one order, since brokers export in any: two exports of
        one broker have the same findings."""
        parts: dict[str, _Parts] = {vhost.name: _Parts() for vhost in self.definitions.vhosts}
        types = {vhost.name: vhost.default_queue_type for vhost in self.definitions.vhosts}

        def of(name: str) -> _Parts:
            return parts.setdefault(name, _Parts())

        for queue in sorted(self.definitions.queues, key=_name):
            of(queue.vhost).queues.setdefault(queue.name, queue)
        for exchange in sorted(self.definitions.exchanges, key=_name):
            if exchange.name:  # the default exchange is as it is
                of(exchange.vhost).exchanges.setdefault(exchange.name, exchange)
        for binding in self.definitions.bindings:
            of(binding.vhost).bindings.setdefault(_identity(binding), binding)
        for policy in sorted(self.definitions.policies, key=_name):
            of(policy.vhost).policies.append(policy)
        return {
            name: VHost(
                name,
                part.queues,
                {own: Exchange(name, own, kind) for own, kind in PREDECLARED.items()} | part.exchanges,
                tuple(part.bindings[identity] for identity in sorted(part.bindings)),
                tuple(part.policies),
                types.get(name),
            )
            for name, part in parts.items()
        }

    @cached_property
    def _policies(self) -> Mapping[str, Policies]:
        return {name: Policies(vhost.policies, self.target) for name, vhost in self.vhosts.items()}

    def queue_settings(self, queue: Queue) -> QueueInForce:
        identity = (queue.vhost, queue.name)
        found = self._queue_settings.get(identity)
        if found is None:
            kind = queue_type(queue, self.vhosts[queue.vhost].default_queue_type, self.target)
            found = queue_settings(queue, kind, self._policies[queue.vhost], self.target)
            self._queue_settings[identity] = found
        return found

    def exchange_settings(self, exchange: Exchange) -> ExchangeInForce:
        identity = (exchange.vhost, exchange.name)
        found = self._exchange_settings.get(identity)
        if found is None:
            found = exchange_settings(exchange, self._policies[exchange.vhost], self.target)
            self._exchange_settings[identity] = found
        return found

    @cached_property
    def bad_patterns(self) -> Mapping[str, str]:
        """Policy pattern -> why it could not be tried: not a regular expression here, or too costly."""
        return {pattern: why for one in self._policies.values() for pattern, why in one.bad_patterns.items()}

    def derived(self, build: Callable[[Broker], T]) -> T:
        """`build(self)`, made once and kept."""
        if build not in self._derived:
            self._derived[build] = build(self)
        found: T = self._derived[build]
        return found


def _name(of: Queue | Exchange | Policy) -> str:
    return of.name


def _identity(binding: Binding) -> _Identity:
    """Two bindings that the broker keeps apart differ in one of these."""
    arguments = tuple(sorted((name, repr(value)) for name, value in binding.arguments.items()))
    return (binding.source, binding.destination_type, binding.destination, binding.routing_key, arguments)
