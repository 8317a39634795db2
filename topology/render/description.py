"""A topology and all that is derived from it, as one JSON value for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from topology import names
from topology.entities import Binding, Entities
from topology.spec import Topology, WorkQueue


def description(topology: Topology, entities: Entities, queue: str | None = None) -> dict[str, Any]:
    """`queues` and `jobs` as they are declared, each queue with the names that are derived from it, and
    `entities` as they are on a broker. Of all work queues, or of one.

    Raises:
        UnknownQueueError: there is no such work queue.
    """
    shown = topology.queues if queue is None else (topology.queue(queue),)
    there = {names.UNROUTED, names.UNROUTED_DLQ}
    for each in shown:
        there.update(names.derived_names(each), [names.policy(each.name)])
    with_policy = {policy.name for policy in entities.policies}
    return {
        "queues": [_queue(each, with_policy) for each in shown],
        "jobs": [
            {"name": job.name, "queue": job.queue, "summary": job.summary}
            for job in topology.jobs
            if job.queue in there
        ],
        "entities": {
            "exchanges": [asdict(exchange) for exchange in entities.exchanges if exchange.name in there],
            "queues": [asdict(made) for made in entities.queues if made.name in there],
            "bindings": [
                _binding(binding)
                for binding in entities.bindings
                if {binding.source, binding.destination} <= there
            ],
            "policies": [asdict(policy) for policy in entities.policies if policy.name in there],
        },
    }


def _queue(queue: WorkQueue, with_policy: set[str]) -> dict[str, Any]:
    ladder = queue.ladder
    policy = names.policy(queue.name)
    steps = [
        {"name": names.step(queue.name, ladder, number), "delay_ms": ladder.step_ms(number)}
        for number in range(ladder.steps)
    ]
    return asdict(queue) | {
        "ladder": asdict(ladder) | {"steps": steps, "due_exchange": names.due(queue.name, ladder)},
        "dead_letter_exchange": names.dlx(queue.name),
        "dead_letter_queue": names.dlq(queue.name),
        "policy": policy if policy in with_policy else None,
    }


def _binding(binding: Binding) -> dict[str, Any]:
    shown = asdict(binding)
    shown["destination_type"] = shown.pop("kind")
    return shown
