"""What goes between the main thread and the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from workers.arrival import Arrival
from workers.completing import Finished


@dataclass(frozen=True)
class Postponed:
    """Not due yet: round the ladder for so many seconds of real time, unclaimed."""

    arrival: Arrival
    seconds: float


@dataclass(frozen=True)
class Started:
    """A pool process began the run."""

    arrival: Arrival


Item = Arrival | Finished | Postponed | Started


@dataclass(frozen=True)
class Reply:
    """What the main thread does with an arrival now. `drop`: nothing, the broker delivers it again."""

    kind: Literal["run", "ack", "reject", "drop", "pause", "resume", "widen", "failed"]
    arrival: Arrival | None = None
    detail: str = ""


@dataclass(slots=True)
class Held:
    """A job that runs here, or waits here for a pool process."""

    arrival: Arrival
    started: float | None = None  # monotonic
    on_record: bool = False  # that it has started
