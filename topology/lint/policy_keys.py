"""The keys that policies may hold, by RabbitMQ version and queue type.

Sources: the registered policy validators and `capabilities()` of the queue types, asked of 3.10.8 and 4.3.6
as they ran, and each key set as a policy there; 3.13 and 4.0 from the released sources.
"""

from __future__ import annotations

from collections.abc import Mapping

from topology.lint.argument_table import QueueType
from topology.lint.definitions import Policy
from topology.lint.problem import Problem
from topology.lint.target import Target
from topology.lint.values import Wanted, age, number_of, one_of, text, whole

_HA = frozenset({"ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure"})
# Theirs to check, by plugins that may not be there.
_FEDERATION = frozenset({"federation-upstream", "federation-upstream-set", "federation-upstream-pattern"})
_STREAM = frozenset({"max-age", "stream-max-segment-size-bytes", "initial-cluster-size"})
_IN_MEMORY = frozenset({"max-in-memory-length", "max-in-memory-bytes"})

_UNSUPPORTED: dict[QueueType, frozenset[str]] = {
    "classic": _STREAM | {"delivery-limit", "dead-letter-strategy"},
    "quorum": _STREAM | _HA | {"max-priority", "queue-mode", "queue-master-locator"},
    "stream": _HA
    | _IN_MEMORY
    | {
        "expires",
        "message-ttl",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "max-length",
        "max-priority",
        "overflow",
        "queue-mode",
        "delivery-limit",
        "queue-master-locator",
    },
}

_COUNT = whole(0)
_OVERFLOW = one_of("drop-head", "reject-publish", "reject-publish-dlx")
_KEYS: Mapping[str, Wanted] = {
    "alternate-exchange": text(),
    "dead-letter-exchange": text(),
    "dead-letter-routing-key": text(),
    "dead-letter-strategy": one_of("at-most-once", "at-least-once"),
    "message-ttl": _COUNT,
    "expires": whole(1),
    "max-length": _COUNT,
    "max-length-bytes": _COUNT,
    "max-in-memory-length": _COUNT,
    "max-in-memory-bytes": _COUNT,
    "queue-mode": one_of("default", "lazy"),
    "queue-version": number_of(1, 2),
    "queue-master-locator": one_of("client-local", "min-masters", "random"),
    "overflow": _OVERFLOW,
    "delivery-limit": _COUNT,
    "max-age": age(),
    "stream-max-segment-size-bytes": whole(0, 3_000_000_000),
    "queue-leader-locator": one_of("client-local", "balanced", "random", "least-leaders"),
    "initial-cluster-size": _COUNT,
}
_SINCE_3_13: Mapping[str, Wanted] = {
    "consumer-timeout": _COUNT,
    "stream-filter-size-bytes": whole(16, 255),
    "target-group-size": whole(1),
}
_SINCE_4_3: Mapping[str, Wanted] = {
    "consumer-disconnected-timeout": _COUNT,
    "delayed-retry-type": text(),
    "delayed-retry-min": _COUNT,
    "delayed-retry-max": _COUNT,
}
# Of operator policies; every other key is refused there.
_OPERATOR = frozenset(
    {"expires", "message-ttl", "max-length", "max-length-bytes", "delivery-limit", *_IN_MEMORY}
)
_OPERATOR_LATER = frozenset(
    {"queue-version", "overflow", "target-group-size", *(key for key in _SINCE_4_3 if "retry" in key)}
)
_APPLY_TO = ("all", "queues", "exchanges")
_APPLY_TO_LATER = (*_APPLY_TO, "classic_queues", "quorum_queues", "streams")


def unsupported_keys(policy: Policy, queue_type: QueueType, target: Target) -> tuple[str, ...]:
    """The keys for which the broker passes over this whole policy on queues of that type."""
    known = _UNSUPPORTED[queue_type]
    if target < Target(3, 13):
        if queue_type == "classic":
            known |= {"queue-leader-locator"}
    elif queue_type != "quorum":
        known |= _IN_MEMORY | {"target-group-size"}
    return tuple(sorted(known.intersection(policy.definition)))


def check_policy(policy: Policy, target: Target) -> tuple[Problem, ...]:
    """Everything for which the broker would refuse the policy itself; not whether it fits its queues.

    Keys of the federation plugin and, up to 3.13, of mirroring are taken as they are.
    """
    found = []
    apply_to = _APPLY_TO if target < Target(3, 12) else _APPLY_TO_LATER
    if policy.apply_to not in apply_to:
        found.append(Problem("bad_value", "apply-to", policy.apply_to, " or ".join(apply_to), True))
    if not policy.definition:
        found.append(Problem("incomplete", "definition", {}, "at least one key", True))
    for key, value in sorted(policy.definition.items()):
        problem = _key(policy, key, value, target)
        if problem:
            found.append(problem)
    return tuple(found)


def _key(policy: Policy, key: str, value: object, target: Target) -> Problem | None:
    if policy.operator:
        later = _OPERATOR_LATER if target >= Target(3, 13) else frozenset[str]()
        if key not in _OPERATOR | later:
            return Problem("unknown", key, value, "a key that operator policies have", True)
    if key in _HA:
        gone = Problem(
            "removed", key, value, "a quorum queue: classic queues are not mirrored any more", True
        )
        return _mirroring(policy, key, value) if target.knows_ha_policies else gone
    if key in _FEDERATION:
        return None
    if key == "queue-master-locator" and target >= Target(4, 3):
        return Problem("removed", key, value, "queue-leader-locator", True)
    wanted = _wanted(key, target)
    if wanted is None:
        return Problem("unknown", key, value, "a key that policies have", True)
    verdict = wanted.judge(value)
    if verdict != "ok":
        return Problem(verdict, key, value, wanted.words, True)
    if key == "queue-mode" and target >= Target(3, 12):
        return Problem(
            "removed", key, value, "nothing: every classic queue keeps its messages on disk", False
        )
    return None


def _mirroring(policy: Policy, key: str, value: object) -> Problem | None:
    """Rules: rabbit_mirror_queue_misc:validate_policy."""
    modes = one_of("all", "exactly", "nodes")
    if key == "ha-mode":
        verdict = modes.judge(value)
        return None if verdict == "ok" else Problem(verdict, key, value, modes.words, True)
    if "ha-mode" not in policy.definition:
        return Problem("incomplete", key, value, "ha-mode beside it", True)
    return None


def _wanted(key: str, target: Target) -> Wanted | None:
    if key == "delivery-limit" and target.negative_limit_is_none:
        return whole()
    found = _KEYS.get(key)
    if found is None and target >= Target(3, 13):
        found = _SINCE_3_13.get(key)
    if found is None and target >= Target(4, 3):
        found = _SINCE_4_3.get(key)
    return found
