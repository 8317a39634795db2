"""Policies of somebody else that change what our queues do, or take the place of a policy of ours. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from topology.entities import Entities, Policy
from topology.entities import Queue as WantedQueue
from topology.lint.definitions import Policy as HavePolicy
from topology.lint.definitions import Queue
from topology.lint.effective import QueueInForce, Setting, queue_settings, queue_type
from topology.lint.policies import Policies
from topology.lint.target import Target
from topology.plan.changes import Change, Difference
from topology.plan.have import Have
from topology.releases import known_policies

# A policy's key, and the field of QueueInForce that says what became of it.
SETTINGS = {
    "message-ttl": "ttl_ms",
    "max-length": "max_length",
    "max-length-bytes": "max_length_bytes",
    "expires": "expires_ms",
    "delivery-limit": "delivery_limit",
    "overflow": "overflow_requested",
    "dead-letter-exchange": "dlx",
    "dead-letter-routing-key": "dead_letter_key",
    "dead-letter-strategy": "strategy_requested",
}
NAMED = 3  # queues that a warning names


def foreign_policies(entities: Entities, have: Have) -> Iterator[Change]:
    """A warning for each such policy and each way in which it changes queues of ours, as they will be once
    `apply` has set the policies of ours."""
    if have.policies is None:
        return
    target = Target.nearest(have.version)
    ours = _as_on_a_broker(known_policies(entities.policies, have.release())[0])
    names = {policy.name for policy in ours}
    others = [policy for policy in have.policies if policy.operator or policy.name not in names]
    alone, among_all = Policies(ours, target), Policies((*ours, *others), target)
    found: dict[tuple[_Cause, tuple[Difference, ...]], list[str]] = defaultdict(list)
    for queue in entities.queues:
        meant, in_force = _settings(queue, alone, target), _settings(queue, among_all, target)
        for cause, changed in _changed(meant, in_force).items():
            found[cause, tuple(changed)].append(queue.name)
    for (cause, differences), queues in found.items():
        words = [word for word in (cause.how, f"holds on {_listed(queues)}") if word]
        yield Change("warning", "policy", cause.policy, differences, "; ".join(words))
    for pattern, why in among_all.bad_patterns.items():
        yield Change("warning", "policy", pattern, note=f"whether this pattern matches is not known: {why}")


class _Cause(NamedTuple):
    policy: str
    how: str


def _changed(meant: QueueInForce, in_force: QueueInForce) -> dict[_Cause, list[Difference]]:
    own, first = meant.applied.policy, in_force.applied.policy
    replaced = "" if own is None or own == first else f"in place of {own.name}"
    if own is not None and any(tie.priority == own.priority for tie in in_force.applied.ties):
        replaced = f"of the same priority as {own.name}: which one holds is not defined"
    changed: dict[_Cause, list[Difference]] = defaultdict(list)
    for key, attribute in SETTINGS.items():
        want, now = getattr(meant, attribute), getattr(in_force, attribute)
        if _value(want) != _value(now):
            changed[_cause(now, first, replaced)].append(Difference(key, _value(now), _value(want)))
    if replaced and not changed:  # e.g. for a consumer timeout, which is no setting of the queue
        changed[_cause(None, first, replaced)] = []
    return changed


def _settings(queue: WantedQueue, policies: Policies, target: Target) -> QueueInForce:
    on_a_broker = Queue("", queue.name, arguments=queue.arguments)
    return queue_settings(on_a_broker, queue_type(on_a_broker, None, target), policies, target)


def _as_on_a_broker(policies: Sequence[Policy]) -> tuple[HavePolicy, ...]:
    return tuple(
        HavePolicy("", each.name, each.pattern, each.definition, each.apply_to, each.priority)
        for each in policies
    )


def _value(setting: Setting[object] | None) -> object:
    return None if setting is None else setting.value


def _cause(setting: Setting[object] | None, first: HavePolicy | None, replaced: str) -> _Cause:
    """The policy that a setting comes from; where one is gone, the policy that took the place of ours."""
    if setting is not None and (named := re.fullmatch(r"(operator )?policy '(.*)'", setting.origin)):
        return _Cause(named[2], "an operator's" if named[1] else replaced)
    return _Cause(first.name if first else "", replaced)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown
