"""What an arriving message of an attempt is worth, given the job's row. A pure function.

The table is that of the design: a message may be dropped only when its job is in a final state.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from storage.claims import JobRow, Waiting
from topology.headers import Attempt

FINAL = frozenset({"SUCCEEDED", "CANCELLED"})
# A worker that is cut off from the broker gives back what it has not begun, as soon as it notices.
UNBEGUN_S = 5.0


@dataclass(frozen=True)
class Run:
    """Ours already: a claim whose commit we did not hear of."""


@dataclass(frozen=True)
class Claim:
    """Waiting, this attempt: claim it."""


@dataclass(frozen=True)
class Adopt:
    """No row: another Celery program published it. Make one."""


@dataclass(frozen=True)
class Believe:
    """The message is ahead of the row, as after a restore of the database: it is believed."""


@dataclass(frozen=True)
class TakeOver:
    """Its worker's lease ran out."""

    lost: UUID


@dataclass(frozen=True)
class Wait:
    """Another worker holds the job: round the ladder. Not an attempt."""

    seconds: float


@dataclass(frozen=True)
class SendOn:
    """Recorded but never published: publish the attempt that waits, then drop this message."""

    attempt: Attempt
    waiting: Waiting


@dataclass(frozen=True)
class Duplicate:
    """The job has ended, or a newer generation runs: ack."""


@dataclass(frozen=True)
class RejectAgain:
    """Dead: the letter may not exist yet."""


Verdict = Run | Claim | Adopt | Believe | TakeOver | Wait | SendOn | Duplicate | RejectAgain


def verdict(row: JobRow | None, arrived: Attempt, token: UUID) -> Verdict:
    """Judge a message of attempt `arrived` whose claim would carry `token`."""
    if row is None:
        return Adopt()
    current = Attempt(row.generation, row.attempt)
    if row.state == "RUNNING" and row.token == token:
        return Run()
    if arrived.generation < current.generation:
        return Duplicate()
    if row.state in FINAL:
        return Duplicate()
    if row.state == "RUNNING":
        if row.lease_left_s > 0 or row.token is None:
            longest = row.lease_left_s if row.begun else UNBEGUN_S
            return Wait(max(min(row.lease_left_s, longest), 0.0))
        return Believe() if arrived.generation > current.generation else TakeOver(row.token)
    if row.state == "DEAD":
        return Believe() if arrived.generation > current.generation else RejectAgain()
    if arrived == current:
        return Claim()
    return Believe() if arrived > current else SendOn(current, row.waiting or Waiting())
