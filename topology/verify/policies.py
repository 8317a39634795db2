"""What `topology verify` says of the policies in force. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from topology.entities import Entities, Policy
from topology.names import policy as policy_name
from topology.policy_harm import Harm, InForce, harms
from topology.releases import POLICY_KEYS_SINCE
from topology.spec import BROKER_CONSUMER_TIMEOUT_S, Topology
from topology.verify.check import APPLY, Check, failed, not_probed
from topology.verify.declared import Owners
from topology.verify.live import Live, LiveQueue


def check_policies(topology: Topology, entities: Entities, live: Live, owners: Owners) -> Iterator[Check]:
    """A failed check for each value of a policy in force that harms one of our queues."""
    own = {policy.name: policy for policy in entities.policies}
    in_force = {name: have.in_force for name, have in live.queues.items()}
    harmed: dict[str, list[Harm]] = {}
    for harm in harms(topology, entities, in_force):
        harmed.setdefault(harm.queue, []).append(harm)
    yield from _untold(entities, live, owners)
    for queue in entities.queues:
        have = live.queues.get(queue.name)
        if have is None:
            continue
        ours = own.get(policy_name(queue.name))
        if ours is not None:
            yield from _own(ours, have, live, owners.of(queue.name))
        for harm in harmed.get(queue.name, ()):
            yield _names_it(harm, have.in_force, live, owners.of(queue.name))


def _untold(entities: Entities, live: Live, owners: Owners) -> Iterator[Check]:
    """Queues whose policies in force the broker does not tell are not as they should be: nobody knows."""
    names: dict[str, list[str]] = {}
    for queue in entities.queues:
        if (have := live.queues.get(queue.name)) is not None and have.in_force.effective is None:
            names.setdefault(owners.of(queue.name), []).append(queue.name)
    for owner, untold in names.items():
        why = f"the broker has no statistics of {', '.join(untold)}, so of dead letters stuck there neither"
        fix = "Is management_agent.disable_metrics_collector set?"
        yield not_probed(f"policies in force on queues of {owner or 'the catch-all'}", owner, why, fix)


def _names_it(harm: Harm, in_force: InForce, live: Live, owner: str) -> Check:
    sources = [
        f"{kind} {name!r}"
        for kind, name, definitions in (
            ("policy", in_force.policy, live.policies(operator=False)),
            ("operator policy", in_force.operator_policy, live.policies(operator=True)),
        )
        if name is not None and definitions.get(name, {}).get(harm.key) == harm.value
    ]
    # Their definitions were not to be read, or are gone since, where none is left.
    source = sources[0] if sources else in_force.names
    return failed(
        f"queue {harm.queue}: {source}",
        owner,
        harm.text,
        f"Take {harm.key} out of {source}, or narrow its pattern so that it leaves {harm.queue} alone",
        about=(harm.queue,),
    )


def _own(ours: Policy, have: LiveQueue, live: Live, owner: str) -> Iterator[Check]:
    path, there = f"queue {have.name}: policy {ours.name!r}", live.policies(operator=False)
    if ours.name not in there and have.in_force.policy != ours.name:
        yield failed(path, owner, "it is missing", APPLY)
    elif (other := have.in_force.policy) != ours.name:
        yield failed(
            path,
            owner,
            f"it is not in force: policy {other!r} is, since only the highest priority counts",
            f"Give {other!r} a priority below {ours.priority}, or take what it needs into one policy",
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
