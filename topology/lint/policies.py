"""Which policies apply to a queue or exchange, and what they set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from topology.lint.argument_table import QueueType
from topology.lint.definitions import Policy
from topology.lint.policy_keys import unsupported_keys
from topology.lint.regex import UndecidedPattern, matcher
from topology.lint.target import Target

__all__ = ["Applied", "Policies", "Skipped", "merged"]


@dataclass(frozen=True)
class Skipped:
    """A policy that matches by name, and is passed over for keys that the queue type does not know."""

    policy: Policy
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Applied:
    """Which policies hold for one object.

    Attributes:
        policy: the one policy that applies.
        operator: the one operator policy.
        ties: policies of the same priority that match as well: which one wins is not defined.
        shadowed: policies that match with a lower priority.
        skipped: see `Skipped`.
        undecided: policies whose pattern could not be tried (`Broker.bad_patterns` says why).
    """

    policy: Policy | None = None
    operator: Policy | None = None
    ties: tuple[Policy, ...] = ()
    shadowed: tuple[Policy, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    undecided: tuple[Policy, ...] = ()


@dataclass(frozen=True)
class _Tried:
    policy: Policy
    matches: Callable[[str], bool] | None  # None: undecided
    unsupported: Mapping[QueueType, tuple[str, ...]]
    applies_to: frozenset[str]


_APPLIES: dict[str, frozenset[str]] = {
    "all": frozenset({"classic", "quorum", "stream", "exchange"}),
    "queues": frozenset({"classic", "quorum", "stream"}),
    "exchanges": frozenset({"exchange"}),
    "classic_queues": frozenset({"classic"}),
    "quorum_queues": frozenset({"quorum"}),
    "streams": frozenset({"stream"}),
}
_TYPES: tuple[QueueType, ...] = ("classic", "quorum", "stream")


class Policies:
    """The policies of one virtual host, each pattern compiled once."""

    def __init__(self, policies: Iterable[Policy], target: Target) -> None:
        self.bad_patterns: dict[str, str] = {}
        ordered = sorted(policies, key=lambda policy: (-policy.priority, policy.name))
        self._tried = [
            _Tried(
                policy,
                self._matcher(policy.pattern),
                {kind: unsupported_keys(policy, kind, target) for kind in _TYPES},
                _APPLIES.get(policy.apply_to, frozenset()),
            )
            for policy in ordered
        ]

    def _matcher(self, pattern: str) -> Callable[[str], bool] | None:
        try:
            return matcher(pattern)
        except UndecidedPattern as why:
            self.bad_patterns[pattern] = str(why)
            return None

    def for_queue(self, name: str, kind: QueueType, in_force: str | None = None) -> Applied:
        """`in_force`: the policy that a live broker names, of several with one priority."""
        return self._apply(name, kind, lambda tried: tried.unsupported[kind], in_force)

    def for_exchange(self, name: str) -> Applied:
        return self._apply(name, "exchange", lambda _: ())

    def _apply(
        self,
        name: str,
        kind: str,
        unsupported: Callable[[_Tried], tuple[str, ...]],
        in_force: str | None = None,
    ) -> Applied:
        matching: list[Policy] = []
        operators: list[Policy] = []
        skipped: list[Skipped] = []
        undecided: list[Policy] = []
        for tried in self._tried:
            if kind not in tried.applies_to:
                continue
            if tried.matches is None:
                undecided.append(tried.policy)
            elif tried.matches(name):
                if keys := unsupported(tried):
                    skipped.append(Skipped(tried.policy, keys))
                else:
                    (operators if tried.policy.operator else matching).append(tried.policy)
        if not (matching or operators or skipped or undecided):
            return _NOTHING
        if in_force is not None:
            matching.sort(key=lambda policy: (-policy.priority, policy.name != in_force))
        ties, shadowed = _rest(matching)
        more_ties, more_shadowed = _rest(operators)
        return Applied(
            matching[0] if matching else None,
            operators[0] if operators else None,
            (*ties, *more_ties),
            (*shadowed, *more_shadowed),
            tuple(skipped),
            tuple(undecided),
        )


_NOTHING = Applied()


def _rest(ordered: Sequence[Policy]) -> tuple[list[Policy], list[Policy]]:
    ties = [policy for policy in ordered[1:] if policy.priority == ordered[0].priority]
    return ties, list(ordered[1 + len(ties) :])


def merged(applied: Applied, key: str, target: Target) -> tuple[object, str] | None:
    """What the policies together say of one key, and where it comes from.

    An operator policy's number only tightens; its overflow and queue version win
    (rabbit_policies:merge_policy_value).
    """
    own = applied.policy.definition.get(key) if applied.policy else None
    limit = applied.operator.definition.get(key) if applied.operator else None
    if own is None and limit is None:
        return None
    assert applied.policy or applied.operator
    by_policy = (own, f"policy '{applied.policy.name}'") if applied.policy else None
    by_operator = (limit, f"operator policy '{applied.operator.name}'") if applied.operator else None
    if limit is None:
        return by_policy
    if own is None or not (isinstance(own, int) and isinstance(limit, int)):
        return by_operator
    if key == "delivery-limit" and target.negative_limit_is_none and min(own, limit) < 0:
        return by_policy if own >= limit else by_operator
    return by_policy if own <= limit else by_operator
