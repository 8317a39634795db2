"""Policies of ours: what of them is to be set on a broker, and what it does not know."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from topology.declare import ctl
from topology.entities import Policy
from topology.lint.definitions import Policy as HavePolicy
from topology.management import Management, segment
from topology.plan.changes import Change, Difference
from topology.plan.have import Have
from topology.releases import POLICY_KEYS_SINCE, known_policies


def left_out(policies: Sequence[Policy], have: Have) -> Iterator[Change]:
    """What the broker's release does not know, and what holds instead."""
    definitions = {policy.name: policy.definition for policy in policies}
    for name, key in known_policies(policies, have.release())[1]:
        yield Change(
            "left out",
            "policy",
            name,
            (Difference(key, None, definitions[name][key]),),
            f"RabbitMQ {have.version} does not know it (from {_since(key)}): the broker's own holds, "
            "consumer_timeout in rabbitmq.conf, 30 minutes by default",
        )


def _since(key: str) -> str:
    return ".".join(map(str, POLICY_KEYS_SINCE[key]))


def to_set(policies: Sequence[Policy], have: Have) -> Iterator[Change]:
    """Those that are missing, or differ. A policy of our name is ours."""
    if have.policies is None:
        return
    found = {policy.name: policy for policy in have.policies if not policy.operator}
    for want in known_policies(policies, have.release())[0]:
        if differences := _differences(want, found.get(want.name)):
            yield Change("set", "policy", want.name, differences)


def _differences(want: Policy, have: HavePolicy | None) -> tuple[Difference, ...]:
    definition = have.definition if have else {}
    found = [
        Difference("pattern", have and have.pattern, want.pattern),
        Difference("apply-to", have and have.apply_to, want.apply_to),
        Difference("priority", have and have.priority, want.priority),
        *(
            Difference(key, definition.get(key), want.definition.get(key))
            for key in sorted(definition.keys() | want.definition.keys())
        ),
    ]
    return tuple(difference for difference in found if difference.have != difference.want)


def put(management: Management, vhost: str, policy: Policy) -> None:
    """Create it, or give it the wanted values.

    Raises:
        ManagementRefusedError: the user may not; a policymaker of the vhost may.
        ManagementError: any other trouble.
    """
    management.put(
        f"/api/policies/{segment(vhost)}/{segment(policy.name)}",
        {
            "pattern": policy.pattern,
            "definition": policy.definition,
            "priority": policy.priority,
            "apply-to": policy.apply_to,
        },
    )


def command(vhost: str, policy: Policy) -> str:
    """The same for an operator's shell."""
    return ctl(
        *("set_policy", "-p", vhost, "--priority", str(policy.priority), "--apply-to", policy.apply_to),
        policy.name,
        policy.pattern,
        json.dumps(policy.definition),
    )
