"""Settings that another policy, or an argument, takes away or mixes."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker, VHost
from topology.lint.codes import found
from topology.lint.definitions import Policy, Queue
from topology.lint.effective import QueueInForce
from topology.lint.finding import Finding
from topology.lint.roles import queues
from topology.lint.words import exchange, joined
from topology.lint.words import policy as named
from topology.lint.words import queue as queue_named

_ONE_WINS = ("dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "overflow")
_SMALLER_WINS = ("message-ttl", "max-length", "max-length-bytes", "expires", "delivery-limit")
_EVERYTHING = {"", ".*", "^", "^.*", ".*$", "^.*$", ".+", "^.+", "^.+$", ".", "^."}


def shadows(broker: Broker) -> Iterator[Finding]:
    """POLICY-KEYS-LOST, ARG-POLICY-CONFLICT, ARG-POLICY-MIX, ARG-POLICY-MIN, for each queue."""
    for vhost, queue in queues(broker):
        settings = broker.queue_settings(queue)
        if settings.type.value == "stream":
            continue
        if settings.dlx is None and settings.applied.policy:
            yield from _lost(vhost, queue, settings, settings.applied.policy)
        if settings.applied.policy:
            yield from _against_arguments(vhost, queue, settings, settings.applied.policy)


def _lost(vhost: VHost, queue: Queue, settings: QueueInForce, winner: Policy) -> Iterator[Finding]:
    for hidden in settings.applied.shadowed:
        dlx = hidden.definition.get("dead-letter-exchange")
        if isinstance(dlx, str) and not hidden.operator:
            yield found(
                "POLICY-KEYS-LOST",
                vhost.name,
                queue_named(queue.name),
                f"its messages are not dead-lettered: {named(winner.name)} (priority {winner.priority}) "
                f"hides {named(hidden.name)} (priority {hidden.priority}), which would send them to "
                f"{exchange(dlx)}. Policies are not merged",
                f"add dead-letter-exchange to {named(winner.name)}",
                (
                    f"{named(winner.name)}, priority {winner.priority}: in force",
                    f"{named(hidden.name)}, priority {hidden.priority}, dead-letter-exchange {dlx!r}: hidden",
                    "no dead-letter exchange",
                ),
            )
            return


def _against_arguments(
    vhost: VHost, queue: Queue, settings: QueueInForce, policy: Policy
) -> Iterator[Finding]:
    def both(key: str) -> tuple[object, object] | None:
        argument, value = queue.arguments.get(f"x-{key}"), policy.definition.get(key)
        return None if argument is None or value is None or argument == value else (argument, value)

    for key in _ONE_WINS:
        if values := both(key):
            policy_wins = key == "overflow" and settings.type.value == "quorum"
            yield found(
                "ARG-POLICY-CONFLICT",
                vhost.name,
                queue_named(queue.name),
                f"argument x-{key} says {values[0]!r} and {named(policy.name)} says {values[1]!r}: the "
                f"{'policy' if policy_wins else 'argument'} holds",
                "keep one of the two; a policy can be changed later, an argument cannot",
                (f"x-{key} {values[0]!r}", f"{named(policy.name)}: {key} {values[1]!r}"),
            )
    for key in _SMALLER_WINS:
        if values := both(key):
            yield found(
                "ARG-POLICY-MIN",
                vhost.name,
                queue_named(queue.name),
                f"argument x-{key} says {values[0]} and {named(policy.name)} says {values[1]}: the smaller "
                "holds",
                "keep one of the two",
                (f"x-{key} {values[0]}", f"{named(policy.name)}: {key} {values[1]}"),
            )
    dlx, key_setting = settings.dlx, settings.dead_letter_key
    if dlx and key_setting and dlx.origin.startswith("argument") != key_setting.origin.startswith("argument"):
        yield found(
            "ARG-POLICY-MIX",
            vhost.name,
            queue_named(queue.name),
            f"dead letters go to {exchange(dlx.value)} ({dlx.origin}) with key {key_setting.value!r} "
            f"({key_setting.origin}): two halves that were not written for each other",
            "set both in the same place",
            (f"{dlx.origin}: {dlx.value!r}", f"{key_setting.origin}: {key_setting.value!r}"),
        )


def ties(broker: Broker) -> Iterator[Finding]:
    """POLICY-OVERLAP-TIE: one finding for each two policies. The one for every name comes first."""
    shared: dict[tuple[str, str, str, bool], list[str]] = {}

    def pair(one: Policy, other: Policy) -> list[str]:
        first, second = sorted(
            (one, other), key=lambda policy: (policy.pattern not in _EVERYTHING, policy.name)
        )
        return shared.setdefault((one.vhost, first.name, second.name, one.operator), [])

    for vhost in broker.vhosts.values():
        applied = [
            *((queue_named(one.name), broker.queue_settings(one).applied) for one in vhost.queues.values()),
            *(
                (exchange(one.name), broker.exchange_settings(one).applied)
                for one in vhost.exchanges.values()
            ),
        ]
        for name, policies in applied:
            for other in policies.ties:
                if winner := policies.operator if other.operator else policies.policy:
                    pair(winner, other).append(name)
        for policy in vhost.policies:
            for other in vhost.policies if policy.pattern in _EVERYTHING else ():
                if other.name != policy.name and _could_tie(policy, other):
                    pair(policy, other)
    for (vhost_name, first, second, operator), names in shared.items():
        yield found(
            "POLICY-OVERLAP-TIE",
            vhost_name,
            named(first, operator),
            f"{named(second, operator)} has the same priority and matches "
            f"{joined(names) if names else 'some of the same names'} too: which of the two holds is not "
            "defined",
            "give one of them another priority",
            (f"{named(first, operator)} and {named(second, operator)}", "same priority, same names"),
        )


def _could_tie(policy: Policy, other: Policy) -> bool:
    kinds = {policy.apply_to, other.apply_to}
    return (
        policy.priority == other.priority
        and policy.operator == other.operator
        and ("all" in kinds or len(kinds) == 1 or ("queues" in kinds and "exchanges" not in kinds))
    )
