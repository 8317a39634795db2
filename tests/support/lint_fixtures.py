"""Short ways to write definitions, and to ask what the linter says of them."""

from __future__ import annotations

from collections.abc import Iterable

from topology.lint.definitions import (
    Arguments,
    Binding,
    Definitions,
    Exchange,
    Parameter,
    Policy,
    Queue,
    User,
    VirtualHost,
)
from topology.lint.finding import Finding
from topology.lint.run import lint
from topology.lint.target import SUPPORTED, Target

NEWEST = SUPPORTED[-1]
OLDEST = SUPPORTED[0]
Thing = Queue | Exchange | Binding | Policy | Parameter | User


def q(
    name: str, arguments: Arguments | None = None, *, durable: bool = True, auto_delete: bool = False
) -> Queue:
    return Queue("/", name, durable=durable, auto_delete=auto_delete, arguments=arguments or {})


def quorum(name: str, arguments: Arguments | None = None) -> Queue:
    return q(name, {"x-queue-type": "quorum", **(arguments or {})})


def x(
    name: str,
    kind: str = "direct",
    arguments: Arguments | None = None,
    *,
    durable: bool = True,
    auto_delete: bool = False,
) -> Exchange:
    return Exchange("/", name, kind, durable=durable, auto_delete=auto_delete, arguments=arguments or {})


def bind(source: str, queue: str, key: str = "", arguments: Arguments | None = None) -> Binding:
    return Binding("/", source, queue, "queue", key, arguments or {})


def chain(source: str, exchange: str, key: str = "") -> Binding:
    return Binding("/", source, exchange, "exchange", key)


def policy(
    name: str,
    pattern: str,
    definition: Arguments,
    *,
    priority: int = 0,
    apply_to: str = "queues",
    operator: bool = False,
) -> Policy:
    return Policy("/", name, pattern, definition, apply_to, priority, operator)


def dead_letters_to(exchange: str, key: str | None = None) -> dict[str, object]:
    """The two arguments."""
    arguments: dict[str, object] = {"x-dead-letter-exchange": exchange}
    return arguments if key is None else {**arguments, "x-dead-letter-routing-key": key}


def defined(*things: Thing, version: str | None = None) -> Definitions:
    """One virtual host `/` with these things in it."""

    return Definitions(
        source="fixture",
        rabbitmq_version=version,
        vhosts=(VirtualHost("/"),),
        queues=tuple(thing for thing in things if isinstance(thing, Queue)),
        exchanges=tuple(thing for thing in things if isinstance(thing, Exchange)),
        bindings=tuple(thing for thing in things if isinstance(thing, Binding)),
        policies=tuple(thing for thing in things if isinstance(thing, Policy)),
        parameters=tuple(thing for thing in things if isinstance(thing, Parameter)),
        users=tuple(thing for thing in things if isinstance(thing, User)),
    )


def findings(*things: Thing, target: Target = NEWEST) -> tuple[Finding, ...]:
    return lint(defined(*things), target)


def alarms(*things: Thing, target: Target = NEWEST) -> dict[str, list[str]]:
    """Errors and warnings: code -> what they are about."""
    return by_code(finding for finding in findings(*things, target=target) if finding.severity != "info")


def notes(*things: Thing, target: Target = NEWEST) -> dict[str, list[str]]:
    """The same for severity info."""
    return by_code(finding for finding in findings(*things, target=target) if finding.severity == "info")


def by_code(found: Iterable[Finding]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for finding in found:
        grouped.setdefault(finding.code, []).append(finding.entity)
    return {code: sorted(entities) for code, entities in sorted(grouped.items())}


def only(found: Iterable[Finding], code: str) -> Finding:
    """The one finding with this code."""
    (finding,) = [one for one in found if one.code == code]
    return finding
