"""Policies that RabbitMQ refuses, passes over, or that match nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from topology.lint.arguments import Problem, QueueType, check_policy, unsupported_keys
from topology.lint.broker import Broker, VHost
from topology.lint.codes import found
from topology.lint.definitions import Policy
from topology.lint.effective import Applied, Skipped
from topology.lint.finding import Finding, Severity
from topology.lint.roles import queues
from topology.lint.target import Target
from topology.lint.versions import versions
from topology.lint.words import exchange, joined, listed
from topology.lint.words import policy as named
from topology.lint.words import queue as queue_named


@dataclass
class Standing:
    """What one policy does among the queues and exchanges there are."""

    matched: list[str] = field(default_factory=list)
    in_force: list[str] = field(default_factory=list)
    passed_over: int = 0


Standings = dict[tuple[str, str, bool], Standing]


def standings(broker: Broker) -> Standings:
    """By vhost, name, and whether it is an operator policy. A tie counts as in force: it may win."""
    return broker.derived(_standings)


def _standings(broker: Broker) -> Standings:
    known: Standings = {
        (policy.vhost, policy.name, policy.operator): Standing() for policy in broker.definitions.policies
    }

    def note(name: str, applied: Applied) -> None:
        winners = [policy for policy in (applied.policy, applied.operator, *applied.ties) if policy]
        skipped = [one.policy for one in applied.skipped]
        for policy in winners:
            known[policy.vhost, policy.name, policy.operator].in_force.append(name)
        for policy in (*winners, *applied.shadowed, *skipped, *applied.undecided):
            known[policy.vhost, policy.name, policy.operator].matched.append(name)
        for policy in skipped:
            known[policy.vhost, policy.name, policy.operator].passed_over += 1

    for vhost in broker.vhosts.values():
        for queue in vhost.queues.values():
            note(queue_named(queue.name), broker.queue_settings(queue).applied)
        for one in vhost.exchanges.values():
            note(exchange(one.name), broker.exchange_settings(one).applied)
    return known


def refused_policies(broker: Broker) -> Iterator[Finding]:
    """POLICY-UNKNOWN-KEY, POLICY-VALUE, HA-POLICY, POLICY-PATTERN."""
    for policy in broker.definitions.policies:
        problems = check_policy(policy, broker.target)
        mirrored = sorted(key for key in policy.definition if key.startswith("ha-"))
        if mirrored:
            yield _mirrored(broker, policy, mirrored)
        unknown = [p for p in problems if p.kind == "unknown" and p.name not in mirrored]
        if unknown:
            names = sorted(problem.name for problem in unknown)
            yield _refused("POLICY-UNKNOWN-KEY", policy, f"no such policy key: {listed(names)}", names)
        others = [p for p in problems if p.refused and p.kind != "unknown" and p.name not in mirrored]
        if others:
            yield _refused("POLICY-VALUE", policy, "; ".join(map(wrong, others)), [p.name for p in others])
        if why := broker.bad_patterns.get(policy.pattern):
            yield found(
                "POLICY-PATTERN",
                policy.vhost,
                named(policy.name, policy.operator),
                f"whether it matches could not be tried, and it was left out: {why}",
                "write the pattern in a simpler way",
                (f"pattern {policy.pattern!r}",),
            )


def wrong(problem: Problem) -> str:
    """`x-message-ttl is '60', expected a whole number of at least 0`."""
    return f"{problem.name} is {problem.value!r:.80}, expected {problem.expected}"


def _refused(code: str, policy: Policy, why: str, keys: list[str]) -> Finding:
    return found(
        code,
        policy.vhost,
        named(policy.name, policy.operator),
        f"the policy is refused, and an import fails before any queue is made: {why}",
        f"remove or correct {listed(keys)}",
        (named(policy.name, policy.operator), f"definition: {', '.join(sorted(policy.definition))}"),
        versions=versions(
            lambda target: any(one.refused and one.name in keys for one in check_policy(policy, target))
        ),
    )


def _mirrored(broker: Broker, policy: Policy, keys: list[str]) -> Finding:
    stated = broker.definitions.rabbitmq_version or ""
    imported = broker.definitions.origin != "broker" and not stated.startswith(("4.", "5."))
    # What a RabbitMQ 4 has stored is from before its upgrade, and ignored; only a new policy is refused.
    refused = not broker.target.knows_ha_policies and imported
    message = (
        "RabbitMQ 4 has no mirrored classic queues: it refuses this policy, an import fails before any "
        "queue is made, and after an upgrade the queues have one copy"
    )
    return found(
        "HA-POLICY",
        policy.vhost,
        named(policy.name, policy.operator),
        message,
        f"remove {listed(keys)}; declare the queues as quorum queues",
        (named(policy.name, policy.operator), f"keys {', '.join(keys)}"),
        severity="error" if refused else None,
        versions="4.0+",
    )


def _passes_over(skipped: Skipped, kind: QueueType, target: Target) -> bool:
    return any(key in skipped.keys for key in unsupported_keys(skipped.policy, kind, target))


def policies_in_vain(broker: Broker) -> Iterator[Finding]:
    """POLICY-NOT-APPLICABLE, POLICY-NO-MATCH, POLICY-NEVER-WINS, POLICY-DLX-MISSING."""
    for vhost, queue in queues(broker):
        settings = broker.queue_settings(queue)
        for skipped in settings.applied.skipped:
            holds_dlx = "dead-letter-exchange" in skipped.policy.definition
            severity: Severity = "error" if holds_dlx else "warning"
            also = ", its dead-letter exchange included" if holds_dlx else ""
            yield found(
                "POLICY-NOT-APPLICABLE",
                vhost.name,
                queue_named(queue.name),
                f"{named(skipped.policy.name)} is passed over as a whole{also}: {settings.type.value} "
                f"queues do not know {listed(skipped.keys)}",
                f"move {listed(skipped.keys)} to a policy of its own that applies to the right queues only, "
                "or remove it",
                (f"{named(skipped.policy.name)} matches", f"{settings.type.value} queue: passed over"),
                severity="info" if settings.type.value == "stream" else severity,
                versions=versions(partial(_passes_over, skipped, settings.type.value)),
            )
    for policy in broker.definitions.policies:
        standing = standings(broker)[policy.vhost, policy.name, policy.operator]
        path = (f"pattern {policy.pattern!r}, apply-to {policy.apply_to}, priority {policy.priority}",)
        if policy.pattern not in broker.bad_patterns:
            if not standing.matched:
                yield found(
                    "POLICY-NO-MATCH",
                    policy.vhost,
                    named(policy.name, policy.operator),
                    f"nothing that is declared matches pattern {policy.pattern!r} (apply-to "
                    f"{policy.apply_to})",
                    "correct the pattern, or delete the policy",
                    (*path, "matches nothing"),
                )
            elif not standing.in_force:
                why = "another policy of a higher priority hides it"
                fix = "only one policy holds for a queue: merge the two, or change priorities and patterns"
                if standing.passed_over == len(standing.matched):
                    why = "keys that the queue types do not know make the broker pass over it"
                    fix = "take out the keys that POLICY-NOT-APPLICABLE names"
                elif standing.passed_over:
                    why += ", or keys of another queue type make the broker pass over it"
                yield found(
                    "POLICY-NEVER-WINS",
                    policy.vhost,
                    named(policy.name, policy.operator),
                    f"it matches {joined(standing.matched, 3)} and is in force on none: {why}",
                    fix,
                    (*path, "in force on none"),
                )
        yield from _missing_exchange(broker, policy)


def _missing_exchange(broker: Broker, policy: Policy) -> Iterator[Finding]:
    vhost: VHost | None = broker.vhosts.get(policy.vhost)
    dlx = policy.definition.get("dead-letter-exchange")
    if vhost is None or not isinstance(dlx, str) or dlx in vhost.exchanges:
        return
    # Where it is in force, DLX-MISSING tells of each queue.
    for queue in vhost.queues.values():
        settings = broker.queue_settings(queue)
        if settings.applied.policy == policy and settings.dlx and settings.dlx.value == dlx:
            return
    yield found(
        "POLICY-DLX-MISSING",
        policy.vhost,
        named(policy.name, policy.operator),
        f"dead letters of every queue that it will hold for are lost: {exchange(dlx)} does not exist",
        f"declare {exchange(dlx)} and bind a dead-letter queue to it",
        (named(policy.name, policy.operator), f"dead-letter-exchange {dlx!r}: does not exist"),
    )
