"""What is wanted against what is there. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from topology.entities import Binding, Entities, Exchange, Queue
from topology.lint.definitions import Exchange as HaveExchange
from topology.lint.definitions import Queue as HaveQueue
from topology.plan.changes import Change, Difference, Kind, Plan
from topology.plan.foreign import foreign_policies
from topology.plan.have import Have, HaveBinding
from topology.plan.moving import is_begun
from topology.plan.others import is_step, left_over, other_bindings
from topology.plan.policies import left_out, to_set
from topology.releases import Release

# The broker compares these when a queue is declared again; it keeps any other and ignores it.
COMPARED = frozenset(
    f"x-{name}"
    for name in (
        "queue-type",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "delivery-limit",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "max-priority",
        "message-ttl",
        "overflow",
        "queue-leader-locator",
        "queue-master-locator",
        "queue-mode",
        "queue-version",
        "quorum-initial-group-size",
        "single-active-consumer",
    )
)

# As COMPARED, from RabbitMQ 4.3 on; older ones ignore them.
COMPARED_FROM_4_3 = frozenset(
    f"x-{name}"
    for name in (
        "consumer-disconnected-timeout",
        "consumer-timeout",
        "delayed-retry-max",
        "delayed-retry-min",
        "delayed-retry-type",
    )
)

OTHER_SCALE = "declared with another REDRIVE_TIME_SCALE?"
HALF_WAY = "its migration is under way or was interrupted: topology migrate goes on with it"


def compare(entities: Entities, have: Have) -> Plan:
    """Everything that there is to be said, in the order of `Kind`."""
    changes = [
        *_exchanges(entities, have),
        *_queues(entities, have),
        *_bindings(entities, have),
        *to_set(entities.policies, have),
        *left_out(entities.policies, have),
        *foreign_policies(entities, have),
        *left_over(entities, have),
        *other_bindings(entities, have),
    ]
    order = get_args(Kind)
    changes.sort(key=lambda change: order.index(change.kind))
    return Plan(tuple(changes), tuple(_not_seen(entities, have)))


def _not_seen(entities: Entities, have: Have) -> Iterator[str]:
    for name in sorted(have.unseen):
        yield f"{name}: its arguments; the user may not configure it, or the broker does not tell them"
    if have.bindings is None:
        yield f"{len(entities.bindings)} bindings: only the management API tells them"
    if have.policies is None:
        yield f"policies, {len(entities.policies)} of ours: only the management API tells them"
    if not have.listed:
        yield "what is left over from former topologies: only the management API tells it"


def _exchanges(entities: Entities, have: Have) -> Iterator[Change]:
    for want in entities.exchanges:
        found = have.exchanges.get(want.name)
        if found is None:
            yield Change("create", "exchange", want.name)
        elif want.name not in have.unseen and (differences := exchange_differences(want, found)):
            yield Change("conflict", "exchange", want.name, differences)


def _queues(entities: Entities, have: Have) -> Iterator[Change]:
    for want in entities.queues:
        found = have.queues.get(want.name)
        if is_begun(want.name, have):
            differences = queue_differences(want, found, have.release()) if found is not None else ()
            yield Change("conflict", "queue", want.name, differences, HALF_WAY)
        elif found is None:
            yield Change("create", "queue", want.name)
        elif want.name not in have.unseen and (differences := queue_differences(want, found, have.release())):
            scaled = [each.argument for each in differences] == ["x-message-ttl"] and is_step(want.name)
            yield Change("conflict", "queue", want.name, differences, OTHER_SCALE if scaled else "")


def _bindings(entities: Entities, have: Have) -> Iterator[Change]:
    if have.bindings is None:
        return
    for want in entities.bindings:
        if not has_binding(have, want):
            yield Change("create", "binding", want.text)


def has_binding(have: Have, want: Binding) -> bool:
    """Whether it is there, as far as bindings can be seen."""
    found = HaveBinding(want.source, want.destination, want.kind, want.routing_key)
    return have.bindings is None or found in have.bindings


def exchange_differences(want: Exchange, have: HaveExchange) -> tuple[Difference, ...]:
    """Of the type, the properties, and the one argument that a broker compares."""
    plain = (
        Difference("type", have.type, want.type),
        Difference("durable", have.durable, True),
        Difference("auto_delete", have.auto_delete, False),
        Difference("internal", have.internal, False),
    )
    argument = "alternate-exchange"
    return tuple(
        difference
        for difference in (
            *plain,
            Difference(argument, have.arguments.get(argument), want.arguments.get(argument)),
        )
        if not _same(difference.have, difference.want)
    )


def queue_differences(want: Queue, have: HaveQueue, release: Release) -> tuple[Difference, ...]:
    """Of the properties and the arguments. Arguments that this release ignores are no difference."""
    compared = COMPARED | COMPARED_FROM_4_3 if release >= (4, 3) else COMPARED
    plain = (
        Difference("durable", have.durable, True),
        Difference("auto_delete", have.auto_delete, False),
        Difference("exclusive", have.exclusive, False),
    )
    return tuple(
        difference
        for difference in (*plain, *_arguments(want.arguments, have.arguments, compared))
        if not _same(difference.have, difference.want)
    )


def _arguments(
    want: Mapping[str, object], have: Mapping[str, object], compared: frozenset[str]
) -> Iterator[Difference]:
    for argument in sorted(want.keys() | (have.keys() & compared)):
        yield Difference(argument, have.get(argument), want.get(argument))


def _same(have: object, want: object) -> bool:
    # True == 1 to Python; to the broker they are inequivalent.
    return have == want and isinstance(have, bool) == isinstance(want, bool)
