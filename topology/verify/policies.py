"""Do policies in force take away what the topology promises? Pure.

An argument beats a policy for the dead-letter exchange, key and strategy. Of TTL, length, expiry and delivery
limit the lower one counts, and for the overflow of a quorum queue the policy does.
https://www.rabbitmq.com/docs/policies
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from topology.entities import Entities, Policy, Queue
from topology.names import policy as policy_name
from topology.releases import POLICY_KEYS_SINCE
from topology.spec import BROKER_CONSUMER_TIMEOUT_S, Topology
from topology.verify.check import APPLY, Check, failed, not_probed
from topology.verify.declared import Owners
from topology.verify.live import Live, LiveQueue

_AT_LEAST_ONCE = "at-least-once"


def check_policies(topology: Topology, entities: Entities, live: Live, owners: Owners) -> Iterator[Check]:
    """A failed check for each value of a policy in force that harms one of our queues."""
    own = {policy.name: policy for policy in entities.policies}
    yield from _untold(entities, live, owners)
    for queue in entities.queues:
        have = live.queues.get(queue.name)
        if have is None:
            continue
        ours = own.get(policy_name(queue.name))
        if ours is not None:
            yield from _own(ours, have, live, owners.of(queue.name))
        for key, why in _harm(queue, have, ours, topology):
            yield _names_it(queue, have, live, key, why, owners.of(queue.name))


def _untold(entities: Entities, live: Live, owners: Owners) -> Iterator[Check]:
    """Queues whose policies in force the broker does not tell are not as they should be: nobody knows."""
    names: dict[str, list[str]] = {}
    for queue in entities.queues:
        if (have := live.queues.get(queue.name)) is not None and have.effective is None:
            names.setdefault(owners.of(queue.name), []).append(queue.name)
    for owner, untold in names.items():
        why = f"the broker has no statistics of {', '.join(untold)}, so of dead letters stuck there neither"
        fix = "Is management_agent.disable_metrics_collector set?"
        yield not_probed(f"policies in force on queues of {owner or 'the catch-all'}", owner, why, fix)


def _harm(
    queue: Queue, have: LiveQueue, ours: Policy | None, topology: Topology
) -> Iterator[tuple[str, str]]:
    effective, arguments = have.effective or {}, queue.arguments
    declared = ours.definition if ours is not None else {}
    for key in ("max-length", "max-length-bytes"):
        if key in effective:
            yield key, "a full queue refuses or drops messages, and what is on its way there waits, unseen"
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
    work = next((each for each in topology.queues if each.name == queue.name), None)
    if work is not None and isinstance(timeout, int) and timeout <= work.time_limit_s * 1000:
        yield (
            "consumer-timeout",
            f"the broker takes jobs back while they run: their time limit is {work.time_limit_s:g} s",
        )


def _ttl_words(arguments: Mapping[str, Any]) -> str:
    if "x-message-ttl" in arguments:
        return f"the step's own TTL is {arguments['x-message-ttl']} ms, and the lower one counts"
    if "x-dead-letter-exchange" in arguments:
        return "jobs that wait longer are dead-lettered as expired"
    return "this dead-letter queue forgets: letters that wait longer are lost"


def _names_it(queue: Queue, have: LiveQueue, live: Live, key: str, why: str, owner: str) -> Check:
    value = (have.effective or {}).get(key)
    sources = [
        f"{kind} {name!r}"
        for kind, name, definitions in (
            ("policy", have.policy, live.policies(operator=False)),
            ("operator policy", have.operator_policy, live.policies(operator=True)),
        )
        if name is not None and definitions.get(name, {}).get(key) == value
    ]
    if not sources:  # their definitions were not to be read, or are gone since
        named = (("policy", have.policy), ("operator policy", have.operator_policy))
        sources = [" or ".join(f"{kind} {name!r}" for kind, name in named if name is not None)]
    source = sources[0]
    return failed(
        f"queue {queue.name}: {source}",
        owner,
        f"{key} is {value!r}: {why}",
        f"Take {key} out of {source}, or narrow its pattern so that it leaves {queue.name} alone",
        about=(queue.name,),
    )


def _own(ours: Policy, have: LiveQueue, live: Live, owner: str) -> Iterator[Check]:
    path, there = f"queue {have.name}: policy {ours.name!r}", live.policies(operator=False)
    if ours.name not in there and have.policy != ours.name:
        yield failed(path, owner, "it is missing", APPLY)
    elif have.policy != ours.name:
        yield failed(
            path,
            owner,
            f"it is not in force: policy {have.policy!r} is, since only the highest priority counts",
            f"Give {have.policy!r} a priority below {ours.priority}, or take what it needs into one policy",
        )
    elif there.get(ours.name, ours.definition) != ours.definition:
        yield failed(path, owner, f"it says {dict(there[ours.name])}", APPLY)
    if (timeout := ours.definition.get("consumer-timeout")) is None:
        return
    too_old = live.have.release() < POLICY_KEYS_SINCE["consumer-timeout"]
    if too_old and isinstance(timeout, int) and timeout > BROKER_CONSUMER_TIMEOUT_S * 1000:
        yield failed(
            path,
            owner,
            f"RabbitMQ {live.have.version} takes no consumer-timeout from a policy (3.12 does)",
            "Set consumer_timeout in rabbitmq.conf, or upgrade",
        )
