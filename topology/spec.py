"""Queues and jobs as data: frozen values, checked when they are built."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pydantic import BaseModel

from topology.errors import InvalidTopologyError, UnknownJobTypeError, UnknownQueueError
from topology.field_checks import check_name, check_number, check_type, check_whole, wrong
from topology.names import ladder_names, own_names
from topology.retry_ladder import LONGEST_TTL_MS, Ladder

__all__ = ["JobType", "Ladder", "Topology", "WorkQueue"]


# https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout
BROKER_CONSUMER_TIMEOUT_S = 1_800.0
LONGEST_LIMIT_S = 7 * 86_400
T = TypeVar("T")


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
        owner = f"queue {self.name!r}"
        check_type(owner, "ladder", self.ladder, Ladder, "a Ladder")
        self.ladder.check(owner)
        check_name(owner, "name", self.name, self.ladder.steps)
        check_whole(owner, "delivery_limit", self.delivery_limit, 1, 1_000_000)
        check_whole(owner, "prefetch", self.prefetch, 1, 1_000)
        check_whole(owner, "watermark", self.watermark, 1, 10**9)
        check_number(owner, "time_limit_s", self.time_limit_s, 1, LONGEST_LIMIT_S)
        if self.message_ttl_s is not None:
            check_number(owner, "message_ttl_s", self.message_ttl_s, 0.001, LONGEST_TTL_MS / 1000)
        if self.max_priority is not None:
            check_whole(owner, "max_priority", self.max_priority, 1, 255)
        if self.consumer_timeout_s is not None:
            check_number(owner, "consumer_timeout_s", self.consumer_timeout_s, 1, LONGEST_LIMIT_S)
        check_type(owner, "single_active_consumer", self.single_active_consumer, bool, "True or False")
        check_type(owner, "classic_reason", self.classic_reason, str, "a text")
        check_type(owner, "description", self.description, str, "a text")
        self._check_type(owner)
        self._check_time_limit(owner)

    def _check_type(self, owner: str) -> None:
        if self.type not in ("quorum", "classic"):
            raise wrong(owner, "type", self.type, "quorum or classic")
        if self.type == "classic" and not self.classic_reason.strip():
            raise InvalidTopologyError(
                f"{owner}: classic_reason is empty; say why its dead letters may be lost"
            )
        if self.type == "quorum" and self.classic_reason:
            raise InvalidTopologyError(f"{owner}: classic_reason is set, but the type is quorum")
        if self.type == "classic" and self.delivery_limit != WorkQueue.delivery_limit:
            raise InvalidTopologyError(
                f"{owner}: delivery_limit is {self.delivery_limit}, but only quorum queues have one"
            )
        if self.type == "quorum" and self.max_priority is not None:
            raise InvalidTopologyError(
                f"{owner}: max_priority is {self.max_priority}, but only classic queues take it; "
                "a quorum queue has two fixed priorities from RabbitMQ 4"
            )

    def _check_time_limit(self, owner: str) -> None:
        timeout_s = self.consumer_timeout_s or BROKER_CONSUMER_TIMEOUT_S
        if self.time_limit_s >= timeout_s:
            raise InvalidTopologyError(
                f"{owner}: time_limit_s is {self.time_limit_s:g}; it must be below the consumer timeout of "
                f"{timeout_s:g} s (consumer_timeout_s), or the broker takes the job back while it runs"
            )


@dataclass(frozen=True)
class JobType:
    """A kind of job that may be submitted: the task's name, its work queue, and the shape of its payload."""

    name: str
    queue: str
    payload: type[BaseModel]
    summary: str = ""

    def __post_init__(self) -> None:
        owner = f"job {self.name!r}"
        check_type(owner, "name", self.name, str, "the task's name")
        if not self.name:
            raise wrong(owner, "name", self.name, "the task's name")
        check_type(owner, "queue", self.queue, str, "a queue's name")
        payload: object = self.payload
        if not (isinstance(payload, type) and issubclass(payload, BaseModel)):
            raise wrong(owner, "payload", self.payload, "a pydantic model class")
        check_type(owner, "summary", self.summary, str, "a text")


@dataclass(frozen=True)
class Topology:
    """Work queues and the catalogue of jobs. Everything on the broker is derived from this value."""

    queues: tuple[WorkQueue, ...]
    jobs: tuple[JobType, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "queues", _all_of("queues", self.queues, WorkQueue))
        object.__setattr__(self, "jobs", _all_of("jobs", self.jobs, JobType))
        if not self.queues:
            raise InvalidTopologyError("the topology has no work queue")
        self._check_names()
        seen, known = set(), [queue.name for queue in self.queues]
        for job in self.jobs:
            if job.queue not in known:
                raise wrong(f"job {job.name!r}", "queue", job.queue, f"one of {', '.join(known)}")
            if job.name in seen:
                raise InvalidTopologyError(f"job {job.name!r} is in the catalogue twice")
            seen.add(job.name)

    def _check_names(self) -> None:
        owners: dict[str, str] = {}
        ladders: dict[str, tuple[str, Ladder]] = {}
        for queue in self.queues:
            owner, names = f"queue {queue.name!r}", list(own_names(queue))
            if (shared := queue.ladder.shared) is None:
                names += ladder_names(queue)
            else:
                first, ladder = ladders.setdefault(shared, (queue.name, queue.ladder))
                for field in ("tick_ms", "steps"):
                    if getattr(queue.ladder, field) != (value := getattr(ladder, field)):
                        must = f"{value}, as in queue {first!r}, which shares the ladder {shared!r}"
                        raise wrong(owner, f"ladder.{field}", getattr(queue.ladder, field), must)
                if first == queue.name:
                    _own(owners, f"ladder.shared {shared!r} of {owner}", ladder_names(queue))
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
            raise InvalidTopologyError(f"{owners[name]} and {owner} both derive the name {name!r}")
        owners[name] = owner


def _all_of(field: str, values: Iterable[T], kind: type[T]) -> tuple[T, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise wrong("", field, values, f"a tuple of {kind.__name__}")
    made = tuple(values)
    for number, value in enumerate(made):
        check_type("", f"{field}[{number}]", value, kind, f"a {kind.__name__}")
    return made
