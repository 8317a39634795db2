"""A message in this worker's hands, from its delivery to its settlement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from storage.claims import Claim
from topology.delivery import TaskMessage
from topology.headers import Attempt
from topology.spec import WorkQueue

if TYPE_CHECKING:
    from workers.parsing import GuardedMessage


@dataclass(eq=False, slots=True)
class Arrival:
    """One delivery. `message` is touched on the main thread only, the rest is not changed by two threads."""

    message: GuardedMessage
    task: TaskMessage
    queue: WorkQueue
    raw_properties: bytes
    raw_body: bytes
    session: int  # the broker connection that delivered it
    limit_s: float  # its run takes no longer, the killing of its process included
    # Taken over from a lost worker: that it begins is on record before it does.
    suspect: bool = False
    # It is not to run any more: dead, unless its job has ended.
    expired: bool = False
    # Runs with nothing beside it: see workers/turns.py.
    alone: bool = False
    token: UUID = field(default_factory=uuid4)
    # The attempt that the claim is for; a takeover counts on from the row, not from the message.
    attempt: Attempt = field(default_factory=Attempt)
    received: float = field(default_factory=time.monotonic)
    # When its job was replayed, monotonic; None in the first generation.
    replayed: float | None = None
    # When its run here began, monotonic, until that has ended; and how it ended, for workers/figures.py.
    began: float | None = None
    ended: str = ""
    # Called with the reason if the job turns out to be dead.
    on_dead: Callable[[str], None] | None = None

    def claim(self) -> Claim:
        return Claim(
            self.task.id,
            self.attempt.generation,
            self.attempt.attempt,
            self.token,
            self.task.task,
            self.queue.name,
        )

    def log_fields(self, action: str) -> dict[str, object]:
        return {
            "action": action,
            "job_id": self.task.id,
            "task": self.task.task,
            "queue": self.queue.name,
            "attempt": str(self.attempt),
        }


def seconds_until_due(task: TaskMessage) -> float:
    """Seconds until a message may run; none or less: now."""
    now = time.time()
    due = task.due_ms / 1000 if task.due_ms is not None else now
    if task.eta is not None:
        due = max(due, task.eta.timestamp())
    return due - now
