"""Queues and jobs as data: frozen values, checked when they are built."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pydantic import BaseModel

from topology.errors import InvalidTopologyError, UnknownJobTypeError, UnknownQueueError

# AMQP 0-9-1 short strings: names are limited to 255 bytes, every derived suffix included.
NAME_BYTES = 255
# The longest suffixes that topology/names.py adds: ".retry.2097152ms" and the like.
SUFFIX_BYTES = 24
# Before the name, the ladder's routing and binding keys have a bit or a star and a dot for each step.
KEY_BYTES_PER_STEP = 2
_NAME = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_\-.:]*")


@dataclass(frozen=True)
class Ladder:
    """A binary retry ladder: step *n* delays by `tick_ms` x 2^n milliseconds.

    A delay is a number of ticks; the steps of its set bits are passed one after the other, inside
    the broker alone. With the defaults one lap delays between 250 ms and 1,023.75 s.
    """

    tick_ms: int = 250
    steps: int = 12

    def __post_init__(self) -> None:
        if not 10 <= self.tick_ms <= 60_000:
            raise InvalidTopologyError(f"ladder.tick_ms is {self.tick_ms}; it must be 10 to 60,000 ms")
        if not 1 <= self.steps <= 20:
            raise InvalidTopologyError(f"ladder.steps is {self.steps}; it must be 1 to 20")

    def step_ms(self, step: int) -> int:
        """The nominal delay of step `step`, in milliseconds."""
        return self.tick_ms << step


@dataclass(frozen=True)
class WorkQueue:
    """A queue that workers consume, with all that hangs on it.

    Args:
        delivery_limit: deliveries after which the broker dead-letters; only the last resort, since
            workers bound their own attempts.
        prefetch: messages that a worker holds per pool process. 1 for queues of long tasks.
        watermark: depth above which the relay stops publishing to it. There is no length limit: a
            full work queue would make its retries wait inside the broker, unseen.
    """

    name: str
    ladder: Ladder = field(default_factory=Ladder)
    delivery_limit: int = 20
    prefetch: int = 16
    watermark: int = 10_000
    description: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or ".." in self.name or self.name.endswith("."):
            raise InvalidTopologyError(
                f"queue {self.name!r}: name must be letters, digits and - _ . : (no empty word between dots)"
            )
        longest = NAME_BYTES - max(SUFFIX_BYTES, KEY_BYTES_PER_STEP * self.ladder.steps)
        if len(self.name.encode()) > longest:
            raise InvalidTopologyError(
                f"queue {self.name[:40]}…: name is over {longest} bytes, the most with "
                f"{self.ladder.steps} ladder steps"
            )
        if self.name.startswith(("amq.", "redrive.")):
            raise InvalidTopologyError(f"queue {self.name!r}: names in amq. and redrive. are reserved")
        for name, low, high in (
            ("delivery_limit", 1, 1_000_000),
            ("prefetch", 1, 1_000),
            ("watermark", 1, 10**9),
        ):
            if not low <= getattr(self, name) <= high:
                raise InvalidTopologyError(
                    f"queue {self.name!r}: {name} is {getattr(self, name)}; it must be {low} to {high:,}"
                )


@dataclass(frozen=True)
class JobType:
    """A kind of job that may be submitted: the task's name, its work queue, and the shape of its payload."""

    name: str
    queue: str
    payload: type[BaseModel]
    summary: str = ""


@dataclass(frozen=True)
class Topology:
    """Work queues and the catalogue of jobs. Everything on the broker is derived from this value."""

    queues: tuple[WorkQueue, ...]
    jobs: tuple[JobType, ...] = ()

    def __post_init__(self) -> None:
        from topology.names import derived_names  # names needs the spec's types

        if not self.queues:
            raise InvalidTopologyError("the topology has no work queue")
        owners: dict[str, str] = {}
        for queue in self.queues:
            for name in derived_names(queue):
                if name in owners:
                    raise InvalidTopologyError(
                        f"queues {owners[name]!r} and {queue.name!r} both derive {name!r}"
                    )
                owners[name] = queue.name
        seen = set()
        for job in self.jobs:
            if job.queue not in {queue.name for queue in self.queues}:
                raise InvalidTopologyError(f"job {job.name!r}: queue {job.queue!r} is not in the topology")
            if job.name in seen:
                raise InvalidTopologyError(f"job {job.name!r} is in the catalogue twice")
            seen.add(job.name)

    def queue(self, name: str) -> WorkQueue:
        """The work queue of that name.

        Raises:
            UnknownQueueError: there is none.
        """
        for queue in self.queues:
            if queue.name == name:
                return queue
        raise UnknownQueueError(
            f"no work queue {name!r}; there are: {', '.join(q.name for q in self.queues)}"
        )

    def job(self, name: str) -> JobType:
        """The job type of that name.

        Raises:
            UnknownJobTypeError: there is none.
        """
        for job in self.jobs:
            if job.name == name:
                return job
        raise UnknownJobTypeError(f"no job type {name!r}; there are: {', '.join(j.name for j in self.jobs)}")
