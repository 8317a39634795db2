"""What the broker holds, as gauges: of the topology's queues by name, so that their number is bounded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from topology import names
from topology.management import Management, segment
from topology.prometheus.text import Family, gauge
from topology.spec import Topology

TIMEOUT_S = 2.0
# In the order of QueueNumbers' fields.
_COLUMNS = ("messages_ready", "messages_unacknowledged", "messages_dlx", "consumers")
Samples = list[tuple[Mapping[str, str], float]]


@dataclass(frozen=True)
class QueueNumbers:
    """Messages in one queue. `stuck`: dead-lettered, but not taken by the dead-letter exchange."""

    ready: int = 0
    unacknowledged: int = 0
    stuck: int = 0
    consumers: int = 0


def read_queues(url: str, vhost: str) -> dict[str, QueueNumbers]:
    """Every queue of the vhost as the management API has it, up to 5 s old. Blocks.

    Raises:
        ManagementError: no usable answer.
    """
    with Management(url, TIMEOUT_S) as management:
        rows = management.listed(f"/api/queues/{segment(vhost)}", {"columns": ",".join(("name", *_COLUMNS))})
    # A queue that was made this moment has no counts yet.
    return {row["name"]: QueueNumbers(*(row.get(column) or 0 for column in _COLUMNS)) for row in rows}


def queue_gauges(
    topology: Topology, found: Mapping[str, QueueNumbers], also: Collection[str] = ()
) -> list[Family]:
    """A queue that does not exist is left out: 0 messages would say that it is there.

    Args:
        also: queues that are none of the topology's.
    """
    messages: Samples = []
    consumers: Samples = []
    for name in dict.fromkeys((*_queues(topology), *also)):
        if (numbers := found.get(name)) is not None:
            messages.append(({"queue": name, "state": "ready"}, numbers.ready))
            messages.append(({"queue": name, "state": "unacknowledged"}, numbers.unacknowledged))
            consumers.append(({"queue": name}, numbers.consumers))
    ladders, stuck = _ladders(topology, found), _stuck(topology, found)
    return [
        gauge("redrive_queue_messages", "Messages in work queues and dead-letter queues.", messages),
        gauge("redrive_queue_consumers", "Consumers of work queues and dead-letter queues.", consumers),
        gauge("redrive_ladder_messages", "Retries that wait in the broker, by ladder.", ladders),
        gauge(
            "redrive_queue_stuck_messages",
            "Dead letters and retries that the broker cannot hand on, by work queue; other: of the rest.",
            stuck,
        ),
    ]


def _queues(topology: Topology) -> Iterator[str]:
    yield from (queue.name for queue in topology.queues)
    yield from names.dead_letter_queues(topology)


def _steps(topology: Topology) -> Iterator[tuple[str, str]]:
    """The queue of each step, and its ladder's name."""
    for queue in topology.queues:
        for number in range(queue.ladder.steps):
            yield names.step(queue.name, queue.ladder, number), queue.ladder.shared or queue.name


def _ladders(topology: Topology, found: Mapping[str, QueueNumbers]) -> Samples:
    sums: dict[str, int] = {}
    for step, ladder in dict(_steps(topology)).items():
        numbers = found.get(step, QueueNumbers())
        sums[ladder] = sums.get(ladder, 0) + numbers.ready + numbers.unacknowledged
    return [({"ladder": ladder}, number) for ladder, number in sums.items()]


def _stuck(topology: Topology, found: Mapping[str, QueueNumbers]) -> Samples:
    owner = dict(_steps(topology)) | {queue.name: queue.name for queue in topology.queues}
    sums = dict.fromkeys((*owner.values(), "other"), 0)
    for name, numbers in found.items():
        sums[owner.get(name, "other")] += numbers.stuck
    return [({"queue": queue}, number) for queue, number in sums.items()]
