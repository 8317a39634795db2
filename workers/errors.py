"""The exceptions of this package."""

from __future__ import annotations

from celery.exceptions import Ignore


class WorkerError(Exception):
    """Something about the workers went wrong."""


class UnsafeTaskError(WorkerError, ValueError):
    """A task or setting under which a message could be lost; the message names both and the way out."""


class LostClaimError(WorkerError):
    """This attempt lost its job to another worker: nothing that it did in this transaction was kept."""


class JobCancelled(WorkerError, Ignore):
    """Raised by `Task.stop_if_cancelled`; the job is CANCELLED once this leaves the task."""


class AlreadyDone(WorkerError):
    """The effect of this key has happened before. `result` is what was stored with it, or None."""

    def __init__(self, key: str, result: object = None) -> None:
        super().__init__(f"the effect {key!r} has happened before")
        self.key = key
        self.result = result
