"""Every name that is derived from a work queue, in one place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topology.spec import Ladder, Topology, WorkQueue

# The alternate exchange of every dead-letter exchange and of every ladder's end, and its queue:
# what nothing else is bound for arrives here instead of being dropped.
UNROUTED = "redrive.unrouted"
UNROUTED_DLQ = "redrive.unrouted.dlq"
# An exclusive queue of the one migration that may run in a vhost.
MIGRATING = "redrive.migrating"


def dlx(queue: str) -> str:
    """The dead-letter exchange of a work queue."""
    return f"{queue}.dlx"


def dlq(queue: str) -> str:
    """The dead-letter queue of a work queue."""
    return f"{queue}.dlq"


def due(queue: str, ladder: Ladder) -> str:
    """The exchange where a work queue's ladder ends."""
    return f"{ladder.shared or queue}.due"


def step(queue: str, ladder: Ladder, number: int) -> str:
    """The name that a ladder step's queue and exchange share; it says the nominal delay.

    A changed tick or number of steps so adds queues and never meets one with another TTL.
    """
    return f"{ladder.shared or queue}.retry.{_duration(ladder.step_ms(number))}"


def policy(queue: str) -> str:
    """The policy that holds a work queue's tunable values."""
    return f"redrive.{queue}"


def moving(queue: str) -> str:
    """The queue that holds a queue's messages while it is migrated, and the exchange that leads back."""
    return f"{queue}.moving"


def gate(queue: str) -> str:
    """An exclusive queue that is there while `queue` is migrated: no publishing straight to `queue` then."""
    return f"{queue}.gate"


def own_names(queue: WorkQueue) -> Iterator[str]:
    """The work queue's name and those of its dead letters."""
    yield queue.name
    yield dlx(queue.name)
    yield dlq(queue.name)


def ladder_names(queue: WorkQueue) -> Iterator[str]:
    """The names of its ladder, which other queues may share."""
    yield due(queue.name, queue.ladder)
    for number in range(queue.ladder.steps):
        yield step(queue.name, queue.ladder, number)


def derived_names(queue: WorkQueue) -> Iterator[str]:
    """The work queue's own name and all that are derived from it."""
    yield from own_names(queue)
    yield from ladder_names(queue)


def dead_letter_queues(topology: Topology) -> tuple[str, ...]:
    """Every queue that the dead-letter consumer drains: one per work queue, and the catch-all."""
    return (*(dlq(queue.name) for queue in topology.queues), UNROUTED_DLQ)


def work_queues_of(topology: Topology, name: str) -> tuple[str, ...]:
    """The work queues that an entity name belongs to: several where they share a ladder, else one or none."""
    return tuple(queue.name for queue in topology.queues if name in derived_names(queue))


def _duration(milliseconds: int) -> str:
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"
