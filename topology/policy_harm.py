"""Do policies in force take away what the topology promises? Pure.

An argument beats a policy for the dead-letter exchange, key and strategy. Of TTL, length, expiry and delivery
limit the lower one counts, and for the overflow of a quorum queue the policy does.
https://www.rabbitmq.com/docs/policies
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from topology.entities import Entities, Policy, Queue
from topology.names import policy as policy_name
from topology.spec import Topology

# Of a queue in the management API.
COLUMNS = ("policy", "operator_policy", "effective_policy_definition")
_AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True)
class InForce:
    """What the broker says of one queue's policies. `effective` is what it makes of all of them; None while
    it has not said so."""

    policy: str | None = None
    operator_policy: str | None = None
    effective: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> InForce:
        """A queue with `COLUMNS`."""
        effective = row.get("effective_policy_definition")
        # Where no policy applies, older brokers say [] instead of {}.
        known = effective if isinstance(effective, dict) or effective is None else {}
        return cls(row.get("policy") or None, row.get("operator_policy") or None, known)

    @property
    def names(self) -> str:
        named = (("policy", self.policy), ("operator policy", self.operator_policy))
        return " or ".join(f"{kind} {name!r}" for kind, name in named if name is not None)


UNTOLD = InForce()


class Harm(NamedTuple):
    """A value of a policy in force, and what it does to a queue of ours."""

    queue: str
    key: str
    value: object
    why: str

    @property
    def text(self) -> str:
        return f"{self.key} is {self.value!r}: {self.why}"


def harms(topology: Topology, entities: Entities, in_force: Mapping[str, InForce]) -> Iterator[Harm]:
    """All of them, on those of our queues that are in `in_force`."""
    own = {policy.name: policy for policy in entities.policies}
    limits = {queue.name: queue.time_limit_s for queue in topology.queues}
    for queue in entities.queues:
        if (found := in_force.get(queue.name)) is not None:
            effective = found.effective or {}
            ours, limit = own.get(policy_name(queue.name)), limits.get(queue.name)
            for key, why in _harm(queue, effective, ours, limit):
                yield Harm(queue.name, key, effective[key], why)


def told(topology: Topology, entities: Entities, in_force: Mapping[str, InForce]) -> list[tuple[str, str]]:
    """The same as queue and words: which policy, and what it does."""
    found = harms(topology, entities, in_force)
    return [(harm.queue, f"by {in_force[harm.queue].names} its {harm.text}") for harm in found]


def _harm(
    queue: Queue, effective: Mapping[str, Any], ours: Policy | None, time_limit_s: float | None
) -> Iterator[tuple[str, str]]:
    arguments = queue.arguments
    declared = ours.definition if ours is not None else {}
    for key in ("max-length", "max-length-bytes"):
        if key in effective:
            yield key, _length_words(arguments)
    if "message-ttl" in effective and effective["message-ttl"] != declared.get("message-ttl"):
        yield "message-ttl", _ttl_words(arguments)
    if "expires" in effective:
        yield "expires", "the broker deletes the queue, and the messages in it, when nobody consumes it"
    limit, policy_limit = arguments.get("x-delivery-limit"), effective.get("delivery-limit")
    if isinstance(policy_limit, int) and isinstance(limit, int) and policy_limit < limit:
        yield "delivery-limit", f"it is below the queue's own {limit}, and the lower one counts"
    overflow = effective.get("overflow")
    if arguments.get("x-dead-letter-strategy") == _AT_LEAST_ONCE and overflow not in (None, "reject-publish"):
        yield "overflow", "at-least-once dead-lettering falls back to at-most-once: dead letters may be lost"
    if "x-message-ttl" in arguments and "dead-letter-routing-key" in effective:
        yield "dead-letter-routing-key", "retries leave this step with another key and go astray"
    timeout = effective.get("consumer-timeout")
    if time_limit_s is not None and isinstance(timeout, int) and timeout <= time_limit_s * 1000:
        yield (
            "consumer-timeout",
            f"the broker takes jobs back while they run: their time limit is {time_limit_s:g} s",
        )


def _length_words(arguments: Mapping[str, Any]) -> str:
    if "x-dead-letter-exchange" in arguments:
        return "a full queue refuses or drops messages, and what is on its way there waits, unseen"
    return "once it is full its oldest letters are lost, or new ones wait, unseen, where they died"


def _ttl_words(arguments: Mapping[str, Any]) -> str:
    if "x-message-ttl" in arguments:
        return f"the step's own TTL is {arguments['x-message-ttl']} ms, and the lower one counts"
    if "x-dead-letter-exchange" in arguments:
        return "jobs that wait longer are dead-lettered as expired"
    return "this dead-letter queue forgets: letters that wait longer are lost"
