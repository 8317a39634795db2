"""The ways that probes take: one for each path on which a message of ours can be lost. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID, uuid4

from topology.ladder import end_key, routing_key
from topology.names import UNROUTED, UNROUTED_DLQ, dlq, dlx, due, step
from topology.spec import Topology, WorkQueue

_CATCH_ALL = (UNROUTED, UNROUTED_DLQ)
# With a uuid behind it two words: a key that no binding of ours takes.
_STRAY = "redrive-probe"


@dataclass(frozen=True)
class Leg:
    """One probe to send.

    Args:
        needs: entities without which it would be lost or stuck: it is not sent then.
        touches: what it goes through, for the reason if it does not.
        consumed: the queue whose worker is to reject it, if any.
        ends_in: the dead-letter queue whose drainer answers; None where it comes to our own queue.
        died_in: the queue that it is to be dead-lettered from, if any.
        delay_s: how long the ladder is to keep it, in real time.
    """

    path: str
    queue: str
    exchange: str
    routing_key: str
    needs: tuple[str, ...]
    touches: tuple[str, ...]
    ends_in: str | None
    consumed: str | None = None
    died_in: str | None = None
    delay_s: float = 0.0


@dataclass(frozen=True)
class Way:
    """Where a ladder's probes come out: to be bound to our own queue for the time of the run."""

    exchange: str
    routing_key: str


def dead_letter_legs(queue: WorkQueue) -> Iterator[Leg]:
    """From the work queue, and straight from its dead-letter exchange."""
    name, exchange, letters = queue.name, dlx(queue.name), dlq(queue.name)
    end = due(name, queue.ladder)
    way = (exchange, letters)
    yield Leg(
        f"{name} → {exchange} → {letters}", name, "", name,
        needs=(name, *way, *_CATCH_ALL), touches=(name, *way), ends_in=letters, consumed=name, died_in=name,
    )  # fmt: skip
    yield Leg(
        f"{exchange} → {letters}", name, exchange, name,
        needs=(*way, *_CATCH_ALL), touches=way, ends_in=letters,
    )  # fmt: skip
    yield Leg(
        f"{end} → {name}", name, end, routing_key(0, queue.ladder, name),
        needs=(end, name, *way, *_CATCH_ALL), touches=(end, name, *way), ends_in=letters,
        consumed=name, died_in=name,
    )  # fmt: skip
    yield _unrouted(exchange, name)


def ladder_legs(queue: WorkQueue, run: UUID, time_scale: float) -> Iterator[Leg]:
    """Each step of a ladder, and its end for a key that nothing is bound for."""
    ladder = queue.ladder
    end, top = due(queue.name, ladder), step(queue.name, ladder, ladder.steps - 1)
    for number in range(ladder.steps):
        name = step(queue.name, ladder, number)
        passed = tuple(step(queue.name, ladder, above) for above in range(number, ladder.steps))
        below = tuple(step(queue.name, ladder, under) for under in range(number))
        way = (*passed, *below, end)
        yield Leg(
            f"{name} → {end}", queue.name, top, routing_key(1 << number, ladder, _suffix(run)),
            needs=(*way, *_CATCH_ALL), touches=way, ends_in=None, died_in=name,
            delay_s=ladder.step_ms(number) * time_scale / 1000,
        )  # fmt: skip
    yield _unrouted(end, queue.name)


def way_out(queue: WorkQueue, run: UUID) -> Way:
    """The binding that takes this run's probes, and nothing else, off the ladder's end."""
    return Way(due(queue.name, queue.ladder), end_key(queue.ladder, _suffix(run)))


def ladders(topology: Topology) -> list[WorkQueue]:
    """The queues, but of those that share a ladder only the first."""
    found: dict[str, WorkQueue] = {}
    for queue in topology.queues:
        found.setdefault(due(queue.name, queue.ladder), queue)
    return list(found.values())


def _unrouted(exchange: str, queue: str) -> Leg:
    return Leg(
        f"{exchange} → {UNROUTED} → {UNROUTED_DLQ}", queue, exchange, f"{_STRAY}.{uuid4()}",
        needs=(exchange, *_CATCH_ALL), touches=(exchange, *_CATCH_ALL), ends_in=UNROUTED_DLQ,
    )  # fmt: skip


def _suffix(run: UUID) -> str:
    return f"{_STRAY}-{run}"
