"""What there is to migrate in a vhost, and what cannot be migrated. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from topology.entities import Entities, Queue
from topology.lint.definitions import Policy
from topology.lint.policies import Policies
from topology.lint.target import Target
from topology.migrate.steps import State, Step, Work, steps_left
from topology.plan.compare import exchange_differences, queue_differences
from topology.plan.have import Have
from topology.plan.moving import is_begun, leads_back

NAME_BYTES = 255
FORGETFUL = frozenset({"message-ttl", "expires", "max-length", "max-length-bytes"})


def left_to_do(entities: Entities, have: Have) -> tuple[tuple[Step, ...], ...]:
    """Per queue the steps that are left, for queues with some: begun ones too."""
    each = (steps_of(queue, have) for queue in entities.queues)
    return tuple(steps for steps in each if steps)


def steps_of(want: Queue, have: Have) -> tuple[Step, ...]:
    found = have.queues.get(want.name)
    differences = queue_differences(want, found, have.release()) if found is not None else ()
    state: State = "missing" if found is None else "other" if differences else "wanted"
    holding, way = is_begun(want.name, have), leads_back(want.name, have)
    return steps_left(Work(want, differences), state, holding=holding, way=way)


def obstacles(steps: tuple[Step, ...], have: Have, consumers: int) -> Iterator[str]:
    """Why a queue cannot be migrated, and what to do about it.

    Args:
        consumers: of the queue as it is now.
    """
    work = steps[0].work
    found = have.queues.get(work.queue)
    if len(work.holding.encode()) > NAME_BYTES:
        yield f"{work.queue}: its holding queue's name would be over {NAME_BYTES} bytes"
    if work.holding in have.queues and not is_begun(work.queue, have):
        yield f"{work.queue}: queue {work.holding} is another program's; it has to be renamed first"
    if work.holding in have.exchanges and not leads_back(work.queue, have):
        yield f"{work.queue}: exchange {work.holding} is another program's; it has to be renamed first"
    for policy in _forgetful(work.holding, have):
        yield (
            f"{work.queue}: policy {policy.name!r} would apply to {work.holding} and forget messages there: "
            "narrow its pattern first"
        )
    if found is None:
        return
    if found.exclusive:
        yield f"{work.queue}: it is exclusive to a connection, whose program has to be stopped first"
    if found.auto_delete:
        yield f"{work.queue}: it is auto-delete, so it would take its messages along when we are interrupted"
    if found.arguments.get("x-queue-type") == "stream":
        yield f"{work.queue}: it is a stream, whose messages are never taken off"
    if found.arguments.get("x-single-active-consumer") and consumers:
        yield (
            f"{work.queue}: single active consumer: while its {consumers} consumers are there we get no "
            "message; stop them first"
        )


def _forgetful(holding: str, have: Have) -> Iterator[Policy]:
    """Policies that would make the holding queue forget, or may: the pattern could not be tried."""
    applied = Policies(have.policies or (), Target.nearest(have.version)).for_queue(holding, "quorum")
    first = [policy for policy in (applied.policy, applied.operator) if policy is not None]
    yield from (
        policy
        for policy in (*first, *applied.ties, *applied.undecided)
        if FORGETFUL & policy.definition.keys()
    )


def exchange_conflicts(entities: Entities, have: Have) -> Iterator[str]:
    """Exchanges of another kind, with what to do."""
    for want in entities.exchanges:
        found = have.exchanges.get(want.name)
        for each in exchange_differences(want, found) if found is not None else ():
            yield (
                f"exchange {want.name}: {each.argument} {each.have!r} -> {each.want!r}: an exchange holds no "
                "message, and is not migrated: stop what publishes and dead-letters to it, delete "
                "it, run topology apply, and bind again what is not of this topology"
            )
