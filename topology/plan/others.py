"""What is there and not wanted: left over from a former topology of ours, or somebody else's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from topology.entities import NO_DELIVERY_LIMIT, Entities
from topology.lint.definitions import Queue
from topology.names import UNROUTED
from topology.plan.changes import Change
from topology.plan.have import Have, HaveBinding

_EXCHANGE = re.compile(r".+\.(dlx|due|retry\.\d+m?s)")
_STEP = re.compile(r".+\.retry\.\d+m?s")
NEVER_DELETED = "nothing here deletes it"


def is_step(name: str) -> bool:
    """Whether it is named like a step of a ladder."""
    return _STEP.fullmatch(name) is not None


def left_over(entities: Entities, have: Have) -> Iterator[Change]:
    """Exchanges, queues and policies that a former topology of ours declared, known by what only ours have.

    Exchanges by name and alternate exchange; ladder queues by name and strategy; dead-letter queues by name
    and delivery limit; work queues by their dead-letter exchange; policies by name.
    """
    if not have.listed:
        return
    exchanges = {
        name
        for name in have.exchanges.keys() - {each.name for each in entities.exchanges}
        if _EXCHANGE.fullmatch(name) and have.exchanges[name].arguments.get("alternate-exchange") == UNROUTED
    }
    for name in sorted(exchanges):
        yield Change("left over", "exchange", name, note=NEVER_DELETED)
    for name in sorted(have.queues.keys() - {each.name for each in entities.queues}):
        if _was_ours(have.queues[name], exchanges):
            count = have.messages.get(name)
            held = "" if count is None else f"; it holds {count} message{'' if count == 1 else 's'}"
            yield Change("left over", "queue", name, note=NEVER_DELETED + held)
    wanted = {each.name for each in entities.policies}
    for policy in have.policies or ():
        if policy.name.startswith("redrive.") and not policy.operator and policy.name not in wanted:
            yield Change("left over", "policy", policy.name, note=f"on {policy.pattern}; {NEVER_DELETED}")


def _was_ours(queue: Queue, exchanges: set[str]) -> bool:
    arguments = queue.arguments
    if is_step(queue.name):
        return arguments.get("x-dead-letter-strategy") == "at-least-once"
    if queue.name.endswith(".dlq"):
        return arguments.get("x-delivery-limit") == NO_DELIVERY_LIMIT
    return f"{queue.name}.dlx" == arguments.get("x-dead-letter-exchange") in exchanges


def other_bindings(entities: Entities, have: Have) -> Iterator[Change]:
    """Bindings of our exchanges and queues that are not of this topology."""
    exchanges = {each.name for each in entities.exchanges}
    queues = {each.name for each in entities.queues}
    wanted = {HaveBinding(b.source, b.destination, b.kind, b.routing_key) for b in entities.bindings}
    for binding in sorted((have.bindings or frozenset()) - wanted, key=lambda each: each.text):
        ours = binding.destination in (exchanges if binding.kind == "exchange" else queues)
        if binding.source in exchanges and ours:
            yield Change("left over", "binding", binding.text, note=NEVER_DELETED)
        elif binding.source in exchanges:
            yield Change("extra", "binding", binding.text, note=f"gets a copy of {_what_passes(binding)}")
        elif ours and binding.source in have.exchanges and not _EXCHANGE.fullmatch(binding.source):
            yield Change("extra", "binding", binding.text, note="messages that others publish arrive here")


def _what_passes(binding: HaveBinding) -> str:
    return "dead letters" if binding.source.endswith(".dlx") or binding.source == UNROUTED else "retries"
