"""Queues and jobs as data: frozen values, checked when they are built."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from topology.errors import InvalidTopologyError, UnknownJobTypeError, UnknownQueueError

# AMQP 0-9-1 short strings: names are limited to 255 bytes, every derived suffix included.
NAME_BYTES = 255
# The longest suffixes that topology/names.py adds: ".retry.2097152ms" and the like.
SUFFIX_BYTES = 24
# Before the name, the ladder's routing and binding keys have a bit or a star and a dot for each step.
KEY_BYTES_PER_STEP = 2
MOST_STEPS = 20
# RabbitMQ refuses a TTL of 2^32 ms and more.
LONGEST_TTL_MS = 2**32 - 1
# https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout
BROKER_CONSUMER_TIMEOUT_S = 1_800.0
_NAME = re.compile(r"[A-Za-z0-9_\-][A-Za-z0-9_\-.:]*")


@dataclass(frozen=True)
class Ladder:
    """A binary retry ladder: step *n* delays by `tick_ms` x 2^n milliseconds.

    A delay is a number of ticks; the steps of its set bits are passed one after the other, inside
    the broker alone. With the defaults one lap delays between 250 ms and 1,023.75 s.

    Args:
        shared: a name; the queues whose ladders give the same one share its steps instead of each having
            its own. For topologies of very many queues.
        attempts: how often a job is tried where its task says nothing (`max_retries` + 1).
        jitter: the share of a delay that is drawn at random where the task asks for jitter: at 0.5 a
            delay of 8 s becomes 4 to 8 s.
    """

    tick_ms: int = 250
    steps: int = 12
    shared: str | None = None
    attempts: int = 4
    jitter: float = 0.5

    def __post_init__(self) -> None:
        for name, low, high in (("tick_ms", 10, 60_000), ("steps", 1, MOST_STEPS), ("attempts", 1, 1_000)):
            if not low <= getattr(self, name) <= high:
                raise InvalidTopologyError(
                    f"ladder.{name} is {getattr(self, name)}; it must be {low} to {high:,}"
                )
        if not 0 <= self.jitter <= 1:
            raise InvalidTopologyError(f"ladder.jitter is {self.jitter}; it must be 0 to 1")
        if self.step_ms(self.steps - 1) > LONGEST_TTL_MS:
            raise InvalidTopologyError(
                f"ladder.steps is {self.steps}: the top step of {self.step_ms(self.steps - 1):,} ms is over "
                f"the broker's longest TTL of {LONGEST_TTL_MS:,} ms"
            )
        if self.shared is not None:
            _check_name(f"ladder.shared {self.shared!r}", self.shared, self.steps)

    @classmethod
    def up_to(cls, top_s: float, tick_ms: int = 250, **others: Any) -> Ladder:
        """The ladder whose top step is the first of at least `top_s` seconds."""
        steps = 1
        while tick_ms << (steps - 1) < top_s * 1000 and steps < MOST_STEPS:
            steps += 1
        if tick_ms << (steps - 1) < top_s * 1000:
            raise InvalidTopologyError(
                f"ladder.top_s is {top_s}; ticks of {tick_ms} ms reach {(tick_ms << steps - 1) / 1000:,} s"
            )
        return cls(tick_ms, steps, **others)

    def step_ms(self, step: int) -> int:
        """The nominal delay of step `step`, in milliseconds."""
        return self.tick_ms << step


@dataclass(frozen=True)
class WorkQueue:
    """A queue that workers consume, with all that hangs on it.

    Args:
        type: quorum, or classic with a `classic_reason`: a classic queue's dead letters are moved
            without a confirm, so a broker that dies at that moment loses them.
        delivery_limit: deliveries after which the broker dead-letters; only the last resort, since
            workers bound their own attempts. Quorum queues only.
        prefetch: messages that a worker holds per pool process. 1 for queues of long tasks.
        watermark: depth above which the relay stops publishing to it. There is no length limit: a
            full work queue would make its retries wait inside the broker, unseen.
        message_ttl_s: seconds that a job may wait in the queue; then the broker dead-letters it as
            expired. Set by policy, so it can change without a migration.
        max_priority: priorities 0 to this, for classic queues; at most 10 is advised. A quorum queue has
            the two fixed ones of RabbitMQ 4 and takes no such argument.
        single_active_consumer: one consumer at a time, the others stand by.
        consumer_timeout_s: seconds that a delivery may stay unacknowledged before the broker takes it
            back. Set by policy, from RabbitMQ 3.12; None leaves the broker's own, 30 minutes.
        time_limit_s: the longest hard time limit of a task of this queue; below the consumer timeout.
    """

    name: str
    ladder: Ladder = field(default_factory=Ladder)
    type: Literal["quorum", "classic"] = "quorum"
    classic_reason: str = ""
    delivery_limit: int = 20
    prefetch: int = 16
    watermark: int = 10_000
    message_ttl_s: float | None = None
    max_priority: int | None = None
    single_active_consumer: bool = False
    consumer_timeout_s: float | None = None
    time_limit_s: float = 900
    description: str = ""

    def __post_init__(self) -> None:
        _check_name(f"queue {self.name!r}: name", self.name, self.ladder.steps)
        for name, low, high in (
            ("delivery_limit", 1, 1_000_000),
            ("prefetch", 1, 1_000),
            ("watermark", 1, 10**9),
            ("message_ttl_s", 0.001, LONGEST_TTL_MS / 1000),
            ("max_priority", 1, 255),
            ("consumer_timeout_s", 1, 7 * 86_400),
            ("time_limit_s", 1, 7 * 86_400),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise self._wrong(name, f"is {value}; it must be {low} to {high:,}")
        if self.type not in ("quorum", "classic"):
            raise self._wrong("type", f"is {self.type!r}; it must be quorum or classic")
        if self.type == "classic" and not self.classic_reason:
            raise self._wrong("classic_reason", "is empty; say why its dead letters may be lost")
        if self.type == "quorum" and self.classic_reason:
            raise self._wrong("classic_reason", "is set, but the type is quorum")
        if self.type == "quorum" and self.max_priority is not None:
            raise self._wrong(
                "max_priority",
                "is for classic queues; a quorum queue has two fixed priorities from RabbitMQ 4",
            )
        timeout_s = self.consumer_timeout_s or BROKER_CONSUMER_TIMEOUT_S
        if self.time_limit_s >= timeout_s:
            raise self._wrong(
                "time_limit_s",
                f"is {self.time_limit_s:g}; it must be below the consumer timeout of {timeout_s:g} s, "
                "or the broker takes the job back while it runs",
            )

    def _wrong(self, name: str, what: str) -> InvalidTopologyError:
        return InvalidTopologyError(f"queue {self.name!r}: {name} {what}")


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
        if not self.queues:
            raise InvalidTopologyError("the topology has no work queue")
        self._check_names()
        seen = set()
        for job in self.jobs:
            if job.queue not in {queue.name for queue in self.queues}:
                raise InvalidTopologyError(f"job {job.name!r}: queue {job.queue!r} is not in the topology")
            if job.name in seen:
                raise InvalidTopologyError(f"job {job.name!r} is in the catalogue twice")
            seen.add(job.name)

    def _check_names(self) -> None:
        from topology.names import ladder_names, own_names  # names needs the spec's types

        owners: dict[str, str] = {}
        ladders: dict[str, tuple[str, Ladder]] = {}
        for queue in self.queues:
            owner, names = f"queue {queue.name!r}", list(own_names(queue))
            if (shared := queue.ladder.shared) is None:
                names += ladder_names(queue)
            else:
                first, ladder = ladders.setdefault(shared, (queue.name, queue.ladder))
                if (ladder.tick_ms, ladder.steps) != (queue.ladder.tick_ms, queue.ladder.steps):
                    raise InvalidTopologyError(
                        f"queues {first!r} and {queue.name!r} share the ladder {shared!r}: "
                        "their ladder.tick_ms and ladder.steps must be the same"
                    )
                if first == queue.name:
                    _own(owners, f"ladder.shared {shared!r}", ladder_names(queue))
            _own(owners, owner, names)

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


def _own(owners: dict[str, str], owner: str, names: Iterable[str]) -> None:
    for name in names:
        if name in owners:
            raise InvalidTopologyError(f"{owners[name]} and {owner} both derive {name!r}")
        owners[name] = owner


def _check_name(what: str, name: str, steps: int) -> None:
    if not _NAME.fullmatch(name) or ".." in name or name.endswith("."):
        raise InvalidTopologyError(f"{what} must be letters, digits and - _ . : (no empty word between dots)")
    longest = NAME_BYTES - max(SUFFIX_BYTES, KEY_BYTES_PER_STEP * steps)
    if len(name.encode()) > longest:
        raise InvalidTopologyError(
            f"{what[:60]}… is over {longest} bytes, the most with {steps} ladder steps"
        )
    if name.startswith(("amq.", "redrive.")):
        raise InvalidTopologyError(f"{what}: names in amq. and redrive. are reserved")
