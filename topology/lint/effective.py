"""What is in force on a queue or an exchange once arguments, policies and defaults are put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar, get_args

from topology.lint.argument_table import QueueType
from topology.lint.definitions import Exchange, Queue
from topology.lint.policies import Applied, Policies, Skipped, merged
from topology.lint.target import Target

__all__ = ["Applied", "ExchangeInForce", "Overflow", "QueueInForce", "Setting", "Skipped", "Strategy"]

T = TypeVar("T")
V = TypeVar("V", covariant=True)

Strategy = Literal["at-most-once", "at-least-once"]
Overflow = Literal["drop-head", "reject-publish", "reject-publish-dlx"]


@dataclass(frozen=True)
class Setting(Generic[V]):
    """A value in force, and where it comes from: `argument x-message-ttl`, `policy 'ha'`, `operator policy
    'limits'`, `default of RabbitMQ 4.3`, `default of vhost '/'`."""

    value: V
    origin: str


@dataclass(frozen=True)
class QueueInForce:
    """None: not set. Times in milliseconds, lengths in messages or bytes.

    Attributes:
        dlx: the dead-letter exchange; `""` is the default exchange.
        strategy_requested: what the configuration asks for.
        strategy: what the broker does: at-least-once only with its prerequisites, see `strategy_lacks`.
        strategy_lacks: what is missing for at-least-once, as words; empty where it was not asked for.
        overflow: what the broker does at the length limit, after fallbacks.
        delivery_limit: None also where a negative limit means none.
    """

    type: Setting[QueueType]
    applied: Applied
    dlx: Setting[str] | None
    dead_letter_key: Setting[str] | None
    strategy_requested: Setting[Strategy]
    strategy: Strategy
    strategy_lacks: tuple[str, ...]
    ttl_ms: Setting[int] | None
    max_length: Setting[int] | None
    max_length_bytes: Setting[int] | None
    overflow_requested: Setting[Overflow]
    overflow: Overflow
    delivery_limit: Setting[int] | None
    expires_ms: Setting[int] | None
    max_age: Setting[str] | None = None


@dataclass(frozen=True)
class ExchangeInForce:
    """`routes_as`: the type it routes as: its own, or the `x-delayed-type` of a delayed-message exchange."""

    applied: Applied
    alternate: Setting[str] | None
    routes_as: str


Typed = Callable[[object], T | None]


def text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def whole(least: int) -> Typed[int]:
    """A whole number; JSON's true and 1.0 are not."""
    return lambda value: (
        value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None
    )


def _one_of(known: tuple[T, ...]) -> Typed[T]:
    return lambda value: next((word for word in known if word == value), None)


_TYPE: Typed[QueueType] = _one_of(get_args(QueueType))
_STRATEGY: Typed[Strategy] = _one_of(get_args(Strategy))
_OVERFLOW: Typed[Overflow] = _one_of(get_args(Overflow))


class _Sources:
    """One object's arguments and policies, read key by key. A value that the broker would refuse is none."""

    def __init__(self, arguments: Mapping[str, object], applied: Applied, target: Target) -> None:
        self.arguments, self.applied, self.target = arguments, applied, target
        self.blank = applied.policy is None and applied.operator is None

    def argument(self, name: str, typed: Typed[T]) -> Setting[T] | None:
        value = typed(self.arguments.get(name))
        return None if value is None else Setting(value, f"argument {name}")

    def policy(self, key: str, typed: Typed[T]) -> Setting[T] | None:
        found = None if self.blank else merged(self.applied, key, self.target)
        value = None if found is None else typed(found[0])
        return None if value is None or found is None else Setting(value, found[1])

    def first(self, key: str, typed: Typed[T]) -> Setting[T] | None:
        """The argument, else the policy."""
        return self.argument(f"x-{key}", typed) or self.policy(key, typed)

    def policy_first(self, key: str, typed: Typed[T]) -> Setting[T] | None:
        return self.policy(key, typed) or self.argument(f"x-{key}", typed)

    def least(self, key: str, typed: Typed[int]) -> Setting[int] | None:
        """The smaller of the two."""
        both = [setting for setting in (self.argument(f"x-{key}", typed), self.policy(key, typed)) if setting]
        return min(both, key=lambda setting: setting.value, default=None)


def queue_type(queue: Queue, default: str | None, target: Target) -> Setting[QueueType]:
    """The `x-queue-type` argument, else the vhost's default for durable, shared queues, else classic."""
    written = _TYPE(queue.arguments.get("x-queue-type"))
    if written:
        return Setting(written, "argument x-queue-type")
    named = _TYPE((default or "").removeprefix("rabbit_").removesuffix("_queue"))
    if (
        named
        and target.imports_default_queue_type
        and ("x-queue-type" not in queue.arguments or _empty_type(queue, target))
        and queue.durable
        and not (queue.exclusive or queue.auto_delete)
    ):
        return Setting(named, f"default of vhost '{queue.vhost}'")
    return Setting("classic", "default of RabbitMQ")


def _empty_type(queue: Queue, target: Target) -> bool:
    return target.empty_type_is_default and queue.arguments["x-queue-type"] == ""


def queue_settings(
    queue: Queue, kind: Setting[QueueType], policies: Policies, target: Target
) -> QueueInForce:
    """Rules: rabbit_quorum_queue:ra_machine_config, rabbit_amqqueue_process:process_args_policy."""
    applied = policies.for_queue(queue.name, kind.value, queue.policy)
    read = _Sources(queue.arguments, applied, target)
    if kind.value == "stream":
        return _stream_settings(kind, applied, read)
    quorum = kind.value == "quorum"
    first = read.policy_first if quorum else read.first
    written: Setting[Overflow] | None = first("overflow", _OVERFLOW)
    requested = written or _DROP_HEAD
    # reject-publish-dlx is not known to quorum queues, which then drop from the head.
    falls_back = quorum and requested.value == "reject-publish-dlx"
    overflow: Overflow = "drop-head" if falls_back else requested.value
    dlx = read.first("dead-letter-exchange", text)
    strategy: Setting[Strategy] = read.first("dead-letter-strategy", _STRATEGY) or _AT_MOST_ONCE
    lacks = _lacks(strategy.value, quorum, dlx, overflow)
    expires = whole(1)
    return QueueInForce(
        type=kind,
        applied=applied,
        dlx=dlx,
        dead_letter_key=read.first("dead-letter-routing-key", text),
        strategy_requested=strategy,
        strategy="at-least-once" if strategy.value == "at-least-once" and not lacks else "at-most-once",
        strategy_lacks=lacks,
        ttl_ms=read.least("message-ttl", whole(0)),
        max_length=read.least("max-length", whole(0)),
        max_length_bytes=read.least("max-length-bytes", whole(0)),
        overflow_requested=requested,
        overflow=overflow,
        delivery_limit=_delivery_limit(read, target) if quorum else None,
        expires_ms=read.policy_first("expires", expires)
        if quorum and target < Target(3, 13)
        else read.least("expires", expires),
    )


_DROP_HEAD: Setting[Overflow] = Setting("drop-head", "default of RabbitMQ")
_AT_MOST_ONCE: Setting[Strategy] = Setting("at-most-once", "default of RabbitMQ")


def _stream_settings(kind: Setting[QueueType], applied: Applied, read: _Sources) -> QueueInForce:
    """Nothing leaves a stream but by age and size."""
    return QueueInForce(
        type=kind,
        applied=applied,
        dlx=None,
        dead_letter_key=None,
        strategy_requested=_AT_MOST_ONCE,
        strategy="at-most-once",
        strategy_lacks=(),
        ttl_ms=None,
        max_length=None,
        max_length_bytes=read.least("max-length-bytes", whole(0)),
        overflow_requested=_DROP_HEAD,
        overflow="drop-head",
        delivery_limit=None,
        expires_ms=None,
        max_age=read.first("max-age", text),
    )


def _lacks(strategy: Strategy, quorum: bool, dlx: Setting[str] | None, overflow: Overflow) -> tuple[str, ...]:
    if strategy != "at-least-once":
        return ()
    wanted = (
        (quorum, "a quorum queue"),
        (dlx is not None, "a dead-letter exchange"),
        (overflow == "reject-publish", "overflow reject-publish"),
    )
    return tuple(words for there, words in wanted if not there)


def _delivery_limit(read: _Sources, target: Target) -> Setting[int] | None:
    anything = whole(-(2**63))
    both = [
        setting
        for setting in (
            read.argument("x-delivery-limit", anything),
            read.policy("delivery-limit", anything),
        )
        if setting
    ]
    if not both:
        default = target.default_delivery_limit
        return None if default is None else Setting(default, f"default of RabbitMQ {target}")
    if not target.negative_limit_is_none:
        return min(both, key=lambda setting: setting.value)
    if any(setting.value < 0 for setting in both):
        limit = max(both, key=lambda setting: setting.value)
        return None if limit.value < 0 else limit
    return min(both, key=lambda setting: setting.value)


def exchange_settings(exchange: Exchange, policies: Policies, target: Target) -> ExchangeInForce:
    applied = policies.for_exchange(exchange.name)
    read = _Sources(exchange.arguments, applied, target)
    alternate = read.argument("alternate-exchange", text) or read.policy("alternate-exchange", text)
    delayed = exchange.type == "x-delayed-message"
    routes_as = text(exchange.arguments.get("x-delayed-type")) if delayed else None
    return ExchangeInForce(applied, alternate, routes_as or exchange.type)
