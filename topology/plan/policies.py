"""Policies of ours: what a broker's release knows of them, and what of them is to be set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from topology.declare import ctl
from topology.entities import Policy
from topology.lint.definitions import Policy as HavePolicy
from topology.management import Management, segment
from topology.plan.changes import Change, Difference
from topology.plan.have import Have

# https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout
CONSUMER_TIMEOUT = "consumer-timeout"
CONSUMER_TIMEOUT_SINCE = (3, 12)


def known(policies: Sequence[Policy], release: tuple[int, int]) -> tuple[Policy, ...]:
    """The policies without the keys that the release would refuse (400), and none that is empty then."""
    if release >= CONSUMER_TIMEOUT_SINCE:
        return tuple(policies)
    reduced = (
        replace(
            policy,
            definition={key: value for key, value in policy.definition.items() if key != CONSUMER_TIMEOUT},
        )
        for policy in policies
    )
    return tuple(policy for policy in reduced if policy.definition)


def left_out(policies: Sequence[Policy], have: Have) -> Iterator[Change]:
    """What `known` took away, and what holds instead."""
    if have.release() >= CONSUMER_TIMEOUT_SINCE:
        return
    for policy in policies:
        if CONSUMER_TIMEOUT in policy.definition:
            yield Change(
                "left out",
                "policy",
                policy.name,
                (Difference(CONSUMER_TIMEOUT, None, policy.definition[CONSUMER_TIMEOUT]),),
                f"RabbitMQ {have.version} knows no consumer timeout for one queue (from 3.12): "
                "the broker's own holds, consumer_timeout in rabbitmq.conf, 30 minutes by default",
            )


def to_set(policies: Sequence[Policy], have: Have) -> Iterator[Change]:
    """Those that are missing, or differ. A policy of our name is ours."""
    if have.policies is None:
        return
    found = {policy.name: policy for policy in have.policies if not policy.operator}
    for want in known(policies, have.release()):
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
