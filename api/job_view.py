"""A job as it is shown: derived from its row and its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from api.ready_json import shown_json
from storage.attempts import AttemptRow
from storage.job_actions import JobAction
from storage.job_callbacks import CallbackOfJob
from storage.job_options import JobOptions
from storage.jobs import Job
from storage.outbox import Unsent
from storage.times import shown_time

FINAL = ("SUCCEEDED", "DEAD", "CANCELLED")
# What the end of an attempt means for the job.
AFTER = {
    "succeeded": "SUCCEEDED",
    "retry": "RETRYING",
    "failed": "DEAD",
    "lost": "RETRYING",
    "returned": "QUEUED",
}


def accepted_view(job: Job) -> dict[str, Any]:
    """The job as it was when it was accepted: the answer to its submission, the same to every repetition."""
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "state": "PENDING",
        "attempt": 1,
        "created_at": shown_time(job.created_at),
        "started_at": None,
        "finished_at": None,
        "result": None,
        "error": None,
        "attempts": [],
        "history": [{"at": shown_time(job.created_at), "state": "PENDING"}],
    }


def job_view(
    job: Job,
    attempts: Sequence[AttemptRow],
    actions: Sequence[JobAction] = (),
    options: JobOptions | None = None,
    unsent: Unsent | None = None,
    callback: CallbackOfJob | None = None,
) -> dict[str, Any]:
    """The job as it is now."""
    return {
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "state": job.state,
        "generation": job.generation,
        "attempt": job.attempt,
        "reason": job.reason,
        "created_at": shown_time(job.created_at),
        "started_at": shown_time(job.started_at),
        "finished_at": shown_time(job.finished_at),
        "progress": shown_json(job.progress),
        "result": shown_json(job.result),
        "error": job.error,
        "letter_id": job.letter_id,
        "not_before": shown_time(options.not_before) if options else None,
        "expires": shown_time(options.expires) if options else None,
        "priority": options.priority if options else None,
        # While the broker has not confirmed its message: how often it refused it, and why.
        "outbox": unsent.as_json() if unsent else None,
        "callback": callback.as_json() if callback else None,
        "submitted_by": job.principal,
        "cancel_requested": any(
            action.action == "cancel" and action.generation == job.generation for action in actions
        ),
        "attempts": [attempt.as_json() for attempt in attempts],
        "history": history(job, attempts),
        "actions": [action.as_json() for action in actions],
    }


def history(job: Job, attempts: Sequence[AttemptRow]) -> list[dict[str, Any]]:
    """The states the job went through, oldest first; an end without an attempt's word comes from the row."""
    found: list[tuple[datetime, dict[str, Any]]] = [(job.created_at, {"state": "PENDING"})]
    if job.queued_at is not None:
        found.append((job.queued_at, {"state": "QUEUED"}))
    for attempt in attempts:
        run = {"generation": attempt.generation, "attempt": attempt.attempt}
        found.append((attempt.started_at, {"state": "RUNNING", **run}))
        if attempt.ended_at is not None:
            # Written together: the job ended with it, whatever it asked for.
            ended = job.state in FINAL and attempt.ended_at == job.finished_at
            end = {
                "state": job.state if ended else AFTER[attempt.outcome],
                **run,
                "outcome": attempt.outcome,
                "reason": attempt.reason,
            }
            found.append((attempt.ended_at, end))
    found.sort(key=lambda step: step[0])  # stable: an attempt's start stays before its end
    last = found[-1][1]["state"]
    if job.finished_at is not None and job.state in FINAL and last != job.state:
        found.append((job.finished_at, {"state": job.state, "reason": job.reason}))
    return [{"at": shown_time(at), **step} for at, step in found]
