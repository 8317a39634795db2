"""Which steps are left for one queue. Pure: the broker's state alone tells where a migration stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from topology.entities import NO_DELIVERY_LIMIT, Argument, Queue
from topology.names import gate, moving
from topology.plan.changes import Difference

Stage = Literal["hold", "divert", "empty", "replace", "return", "refill", "tidy"]
ALL: tuple[Stage, ...] = ("hold", "divert", "empty", "replace", "return", "refill", "tidy")
BACK: tuple[Stage, ...] = ("return", "refill", "tidy")

_TEXTS: dict[Stage, str] = {
    "hold": "declare the holding queue {moving}",
    "divert": "bind {moving} wherever {queue} is bound, then unbind {queue}",
    "empty": "move the messages of {queue} to {moving}, until it is empty and no consumer holds one",
    "replace": "delete {queue} and declare it with the new arguments",
    "return": "bind {queue} again, then unbind {moving}",
    "refill": "move the messages back to {queue}",
    "tidy": "delete {moving}, queue and exchange",
}


@dataclass(frozen=True)
class Work:
    """A queue to be migrated: what it is to be, and how it differs."""

    want: Queue
    differences: tuple[Difference, ...] = ()

    @property
    def queue(self) -> str:
        return self.want.name

    @property
    def holding(self) -> str:
        return moving(self.want.name)

    @property
    def gate(self) -> str:
        return gate(self.want.name)


@dataclass(frozen=True)
class Step:
    """One step of one queue; each can be run again."""

    stage: Stage
    work: Work

    def describe(self) -> str:
        return _TEXTS[self.stage].format(queue=self.work.queue, moving=self.work.holding)


State = Literal["missing", "other", "wanted"]


def steps_left(work: Work, queue: State, *, holding: bool, way: bool = False) -> tuple[Step, ...]:
    """What has to be done still.

    Args:
        queue: whether it is there, and with which arguments.
        holding: its holding queue is there, so a migration was begun.
        way: the exchange that leads back is there, so one was begun.
    """
    stages: tuple[Stage, ...] = ()
    if queue == "other":
        stages = ALL
    elif holding:
        stages = BACK if queue == "wanted" else ("replace", *BACK)
    elif way:
        stages = ("tidy",)
    return tuple(Step(stage, work) for stage in stages)


def holding_arguments(want: Queue) -> Mapping[str, Argument]:
    """Of the holding queue. It forgets nothing; a message that reached it through an exchange with an
    expiration of its own is dead-lettered as in the queue itself."""
    dead_letters = (
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-overflow",
    )
    kept = {name: want.arguments[name] for name in dead_letters if name in want.arguments}
    return kept | {"x-queue-type": "quorum", "x-delivery-limit": NO_DELIVERY_LIMIT}
