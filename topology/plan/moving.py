"""Whether a queue's migration was begun, and whether what bears the names it uses is of a migration. Pure."""

from __future__ import annotations

from topology.entities import NO_DELIVERY_LIMIT
from topology.names import moving
from topology.plan.have import Have, HaveBinding

# What every holding queue has, and hardly a queue of another program.
HOLDS: dict[str, str | int | bool] = {"x-queue-type": "quorum", "x-delivery-limit": NO_DELIVERY_LIMIT}


def is_begun(queue: str, have: Have) -> bool:
    """Its holding queue is there. Another program's queue of that name is not taken for one."""
    found = have.queues.get(moving(queue))
    return found is not None and (found.name in have.unseen or HOLDS.items() <= found.arguments.items())


def leads_back(queue: str, have: Have) -> bool:
    """The exchange by which its messages come back is there, and leads nowhere else."""
    name = moving(queue)
    found = have.exchanges.get(name)
    if found is None or found.type != "fanout" or not found.durable or have.bindings is None:
        return False
    ways = {each for each in have.bindings if each.source == name}
    return ways <= {HaveBinding(name, queue, "queue", "")}
