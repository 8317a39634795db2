"""All rules over one broker's definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from topology.lint.broker import Broker
from topology.lint.definitions import Definitions
from topology.lint.finding import Finding
from topology.lint.rules.arguments import exchange_arguments, queue_arguments
from topology.lint.rules.at_least_once import forwarding
from topology.lint.rules.bindings import bindings, unbound_queues
from topology.lint.rules.cycles import dead_letter_cycles
from topology.lint.rules.dead_letter_exchanges import exchanges_in_vain
from topology.lint.rules.dead_letter_queues import dead_letter_queues
from topology.lint.rules.dead_letters import dead_letter_routes
from topology.lint.rules.delays import delays
from topology.lint.rules.drops import drops
from topology.lint.rules.fan_out import fan_out
from topology.lint.rules.imports import imports
from topology.lint.rules.policies import policies_in_vain, refused_policies
from topology.lint.rules.policy_shadows import shadows, ties
from topology.lint.rules.transience import transience
from topology.lint.rules.users import users
from topology.lint.target import Target

RULES: tuple[Callable[[Broker], Iterator[Finding]], ...] = (
    dead_letter_routes,
    exchanges_in_vain,
    dead_letter_queues,
    drops,
    dead_letter_cycles,
    forwarding,
    delays,
    fan_out,
    refused_policies,
    policies_in_vain,
    shadows,
    ties,
    queue_arguments,
    exchange_arguments,
    transience,
    bindings,
    unbound_queues,
    imports,
    users,
)
_ORDER = {"error": 0, "warning": 1, "info": 2}


def lint(definitions: Definitions, target: Target) -> tuple[Finding, ...]:
    """Everything found, what reading them found included.

    Sorted by severity, vhost, entity and code; the same definitions always give the same findings, each once.
    """
    broker = Broker(definitions, target)
    read = (problem for problem in definitions.problems if _counts(problem, target))
    every = {*read, *(finding for rule in RULES for finding in rule(broker))}
    return tuple(sorted(every, key=_place))


def _counts(problem: Finding, target: Target) -> bool:
    """Whether its versions, `3.13+` or `<4.0`, are the target's. What is not JSON is told for every target:
    an old broker that lets it pass is the only reader that does."""
    versions = problem.versions
    if problem.code == "JSON-INVALID":
        return True
    if versions.startswith("<"):
        return target < Target.parse(versions[1:])
    return target >= Target.parse(versions.rstrip("+"))


def _place(finding: Finding) -> tuple[object, ...]:
    return (
        _ORDER[finding.severity],
        finding.vhost,
        finding.entity,
        finding.code,
        finding.message,
        finding.path,
        finding.fix,
    )
