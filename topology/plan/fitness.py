"""Whether a worker may consume its queues: they are on the broker, and as the topology has them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from topology.entities import Entities, compile_topology
from topology.lint.effective import queue_type
from topology.lint.policies import Policies
from topology.lint.target import Target
from topology.management import ManagementError
from topology.names import UNROUTED, UNROUTED_DLQ, dlq, dlx, due
from topology.plan.changes import Change, Plan
from topology.plan.compare import HALF_WAY, compare
from topology.plan.have import Have
from topology.plan.look import look
from topology.plan.probe import probe
from topology.plan.text import difference_text
from topology.settings import TopologySettings
from topology.spec import Topology, WorkQueue

NAMED = 3  # missing entities that are named
# Of a work queue: with another value it still keeps and dead-letters every message. While a release that
# changes one of them goes out, the workers of the one before may start again.
HARMLESS = frozenset({"x-delivery-limit", "x-max-priority", "x-message-ttl", "x-single-active-consumer"})


@dataclass(frozen=True)
class Fitness:
    """Attributes:
    wrong: what would lose messages, with what to do; each a sentence.
    noted: what is only said.
    """

    wrong: tuple[str, ...]
    noted: tuple[str, ...] = ()


def fitness_of(settings: TopologySettings, topology: Topology, names: Collection[str]) -> Fitness:
    """Of the work queues `names`, through the management API where its URL is set; where that gives no
    answer, or has none, over AMQP: what only the management API tells is then among `noted`.

    Raises:
        BrokerUnreachableError: the broker is away.
        AccessRefusedError: it does not let the user in.
    """
    chosen = Topology(tuple(queue for queue in topology.queues if queue.name in names))
    entities = compile_topology(chosen, settings.time_scale)
    said: list[str] = []
    if settings.management_url is not None:
        try:
            return fitness(chosen, entities, look(settings, entities))
        except ManagementError as error:
            said.append(f"the management API gave no answer: {error}")
    # Over AMQP each look is a channel error in the broker's log: the ladders are left to `topology check`.
    near = _without_ladders(chosen, entities)
    found = fitness(chosen, near, probe(settings.address, near))
    return Fitness(found.wrong, (*said, *found.noted))


def fitness(topology: Topology, entities: Entities, have: Have) -> Fitness:
    """Pure. `entities` are those of `topology` that were looked for."""
    plan = compare(entities, have)
    work_queues = {queue.name for queue in topology.queues}
    harmless = [change for change in plan.conflicts if _is_harmless(change, work_queues)]
    wrong = [*_differences(plan, harmless), *_consumer_timeouts(topology.queues, have)]
    begun = [change for change in plan.conflicts if change.note == HALF_WAY]
    noted = [f"{change.entity} {change.name!r}: {HALF_WAY}" for change in begun]
    noted += [_another(change) for change in harmless]
    # A broker's own consumer timeout is in its configuration file, which nobody may read from here.
    noted += [f"policy {change.name!r}: {change.note}" for change in plan.of("left out")]
    return Fitness(tuple(wrong), (*noted, *(f"not seen: {words}" for words in plan.not_seen)))


def _without_ladders(topology: Topology, entities: Entities) -> Entities:
    queues, exchanges = {UNROUTED_DLQ}, {UNROUTED}
    for queue in topology.queues:
        queues |= {queue.name, dlq(queue.name)}
        exchanges |= {dlx(queue.name), due(queue.name, queue.ladder)}
    return Entities(
        tuple(each for each in entities.exchanges if each.name in exchanges),
        tuple(each for each in entities.queues if each.name in queues),
        entities.bindings,
        entities.policies,
    )


def _is_harmless(change: Change, work_queues: Collection[str]) -> bool:
    arguments = {difference.argument for difference in change.differences}
    known = change.entity == "queue" and change.name in work_queues and change.note != HALF_WAY
    return known and bool(arguments) and arguments <= HARMLESS


def _another(change: Change) -> str:
    return f"{change.entity} {change.name!r} is another one: {_said(change)}; run: topology plan"


def _differences(plan: Plan, harmless: Collection[Change]) -> Iterator[str]:
    missing = [f"{change.entity} {change.name!r}" for change in plan.of("create")]
    # The queues that matter most first: a ladder has dozens of the others.
    missing.sort(key=lambda entity: (not entity.startswith("queue"), ".retry." in entity))
    if missing:
        more = len(missing) - NAMED
        listed = " and ".join([", ".join(missing[:NAMED]), *([f"{more} more"] if more > 0 else [])])
        yield f"{listed} {'is' if len(missing) == 1 else 'are'} not on the broker; run: topology apply"
    for change in plan.conflicts:
        if change.note != HALF_WAY and change not in harmless:
            yield _another(change)
    for change in plan.of("set"):
        yield f"policy {change.name!r} is not as in the topology: {_said(change)}; run: topology apply"
    for change in plan.of("warning"):
        if change.differences:
            yield (
                f"policy {change.name!r} changes what the topology says: {_said(change)}; narrow its "
                "pattern, or set the field in the topology; run: topology plan"
            )


def _said(change: Change) -> str:
    said = [difference_text(difference) for difference in change.differences]
    return ", ".join([*said, change.note] if change.note else said)


def _consumer_timeouts(queues: Collection[WorkQueue], have: Have) -> Iterator[str]:
    """A policy of others may take a delivery back before its job's hard limit.

    https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout
    """
    target = Target.nearest(have.version)
    policies = Policies(have.policies or (), target)
    for queue in queues:
        found = have.queues.get(queue.name)
        if found is None:
            continue
        applied = policies.for_queue(queue.name, queue_type(found, None, target).value)
        for policy in (applied.policy, applied.operator):
            timeout_ms = policy.definition.get("consumer-timeout") if policy is not None else None
            if policy is not None and isinstance(timeout_ms, int) and timeout_ms <= queue.time_limit_s * 1000:
                yield (
                    f"policy {policy.name!r} sets a consumer timeout of {timeout_ms / 1000:g} s, not above "
                    f"the {queue.time_limit_s:g} s of queue {queue.name!r} (time_limit_s): the broker would "
                    "take a job back while it runs; raise the one or lower the other"
                )
