"""Jobs: an example of each answer, and the operations."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from api.openapi import story
from api.openapi.job_models import AcceptedJob, BatchAccepted, Job, JobList, JobTypes
from api.openapi.operation import EVENTS, Answer, Body, Operation, one
from api.openapi.problems import EXAMPLES, Problem
from api.openapi.replays import PLAN, Replay
from api.openapi.schema import Count, Shown

_FIRST_RUN = {"generation": 1, "attempt": 1}
_SECOND_RUN = {"generation": 2, "attempt": 1}
_TRIED: dict[str, Any] = {"worker": story.WORKER, "delay_ms": None}
DIED = _TRIED | _FIRST_RUN | {
    "outcome": "failed", "reason": "exception", "exception_type": story.EXCEPTION, "message": story.DEATH,
    "traceback": story.TRACEBACK, "started_at": story.STARTED, "ended_at": story.DIED,
}  # fmt: skip
_DONE = _TRIED | _SECOND_RUN | {
    "outcome": "succeeded", "reason": None, "exception_type": None, "message": None, "traceback": None,
    "started_at": story.STARTED_AGAIN, "ended_at": story.SUCCEEDED,
}  # fmt: skip
_LISTED: dict[str, Any] = {
    "id": story.JOB, "type": story.TASK, "queue": story.QUEUE, "state": "SUCCEEDED", "generation": 2,
    "attempt": 1, "reason": None, "created_at": story.ACCEPTED, "started_at": story.STARTED,
    "finished_at": story.SUCCEEDED, "error": None, "letter_id": None,
}  # fmt: skip
_BEGAN = [{"at": story.ACCEPTED, "state": "PENDING"}, {"at": story.QUEUED, "state": "QUEUED"}]
_ANSWERED = {"at": story.at("12:30:01.215310"), "status": 204}
JOB: dict[str, Any] = _LISTED | {
    "progress": None, "result": story.RESULT, "not_before": None, "expires": None, "priority": None,
    "outbox": None,
    "callback": {"url": story.SHOWN_URL, "on": ["SUCCEEDED"], "deliveries": [
        {"id": story.CALLBACK, "generation": 2, "job_state": "SUCCEEDED", "state": "delivered", "tries": 1,
         "next_try_at": None, "ended_at": _ANSWERED["at"], "why_dead": None, "last_answer": _ANSWERED}]},
    "submitted_by": story.SUBMITTER, "cancel_requested": False, "replaying": False,
    "attempts": [DIED, _DONE],
    "history": [
        *_BEGAN[:1],
        {"at": story.STARTED, "state": "RUNNING"} | _FIRST_RUN,
        {"at": story.DIED, "state": "DEAD"} | _FIRST_RUN | {"outcome": "failed", "reason": "exception"},
        {"at": story.STARTED_AGAIN, "state": "RUNNING"} | _SECOND_RUN,
        {"at": story.SUCCEEDED, "state": "SUCCEEDED"} | _SECOND_RUN
        | {"outcome": "succeeded", "reason": None},
    ],
    "actions": [{"action": "retry", "at": story.REPLAYED, "by": story.OPERATOR, "note": story.WHY,
                 "came_from": story.CAME_FROM, "state": "DEAD", "generation": 1, "replay_id": story.REPLAY}],
}  # fmt: skip
_AT_FIRST: dict[str, Any] = JOB | {
    "generation": 1, "result": None, "letter_id": None, "started_at": None, "finished_at": None,
    "attempts": [], "history": _BEGAN, "actions": [],
    "callback": JOB["callback"] | {"deliveries": []},
}  # fmt: skip
_CANCELLED_AT = story.at("12:00:00.031150")
_CANCEL = {
    "action": "cancel", "at": _CANCELLED_AT, "by": story.SUBMITTER, "note": "the customer withdrew the order",
    "came_from": story.CAME_FROM, "state": "QUEUED", "generation": 1, "replay_id": None,
}  # fmt: skip
_CANCELLED = _AT_FIRST | {
    "state": "CANCELLED", "reason": "cancelled", "finished_at": _CANCELLED_AT, "cancel_requested": True,
    "history": [*_BEGAN, {"at": _CANCELLED_AT, "state": "CANCELLED", "reason": "cancelled"}],
    "actions": [_CANCEL],
}  # fmt: skip
_ASKED_TO_STOP = _AT_FIRST | {
    "state": "RUNNING", "started_at": story.STARTED, "cancel_requested": True,
    "attempts": [DIED | dict.fromkeys(("reason", "exception_type", "message", "traceback", "ended_at"))
                 | {"outcome": "running"}],
    "history": [*_BEGAN, JOB["history"][1]],
    "actions": [_CANCEL | {"at": story.at("12:00:00.140021"), "state": "RUNNING"}],
}  # fmt: skip
ACCEPTED = {
    "id": story.JOB, "type": story.TASK, "queue": story.QUEUE, "state": "PENDING", "attempt": 1,
    "created_at": story.ACCEPTED, "started_at": None, "finished_at": None, "result": None, "error": None,
    "attempts": [], "history": _BEGAN[:1],
}  # fmt: skip


class BatchResults(Shown):
    """`results` in the order of the batch; a refusal says what `POST /jobs` would say."""

    accepted: Count
    replayed: Count = Field(description="of the accepted ones, accepted before under the same key")
    refused: Count
    results: list[BatchAccepted | Problem]


_FIRST_OF_BATCH = {"status": 202, "id": story.JOB, "location": f"/jobs/{story.JOB}", "replayed": False}
_BATCH = {
    "accepted": 2, "replayed": 0, "refused": 0,
    "results": [_FIRST_OF_BATCH,
                _FIRST_OF_BATCH | {"id": story.SECOND_JOB, "location": f"/jobs/{story.SECOND_JOB}"}],
}  # fmt: skip
_SOME = {
    "accepted": 1, "replayed": 0, "refused": 1,
    "results": [_FIRST_OF_BATCH, EXAMPLES["invalid-submission"].content],
}  # fmt: skip


def event(name: str, data: Any, id_: str = "") -> str:
    """A server-sent event as `/stream` and `/jobs/{id}/events` spell it."""
    line = f"id: {id_}\n" if id_ else ""
    return f"event: {name}\n{line}data: {json.dumps(data)}\n\n"


_KEPT = ("Idempotency-Retention",)
_WAITS = ("unknown-job", "too-many-waiting", "too-many-open")
_CURSOR = "1801396800000214~" + story.JOB
_TYPE = {
    "name": story.TASK, "queue": story.QUEUE, "summary": "Charge an order once",
    "payload": {
        "type": "object", "title": "ChargeOrder", "additionalProperties": False,
        "required": ["order_id", "amount_cents", "currency"],
        "properties": {
            "order_id": {"type": "string", "minLength": 1, "maxLength": 100},
            "amount_cents": {"type": "integer", "exclusiveMinimum": 0},
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        },
    },
}  # fmt: skip
_TOLD = f"retry: 2000\n\n{event('job', JOB, '2.1.SUCCEEDED')}"
_EVENTS = Body(None, _TOLD, EVENTS, events={"job": Job})
OPERATIONS = {
    "POST /jobs": Operation(
        "submit_job",
        one(AcceptedJob, ACCEPTED, "Committed: it is published as soon as the broker takes it.", 202,
            ("Location", *_KEPT, "Idempotent-Replayed")),
        ("idempotency-key", "invalid-submission", "idempotency-conflict", "outbox-full"),
    ),
    "POST /jobs/batch": Operation(
        "submit_jobs",
        (*one(BatchResults, _BATCH, "Every job was accepted: they are committed.", 202, _KEPT),
         *one(BatchResults, _SOME, "Some jobs were refused: see `results`. The others are committed.", 207,
              _KEPT)),
        ("idempotency-key", "invalid-batch", "outbox-full"),
    ),
    "GET /jobs": Operation(
        "list_jobs", one(JobList, {"jobs": [_LISTED], "next_cursor": _CURSOR}, "A page of jobs.")
    ),
    "GET /jobs/{job_id}": Operation("get_job", one(Job, JOB, "The job."), _WAITS),
    "GET /jobs/{job_id}/result": Operation(
        "get_job_result",
        one({}, story.RESULT, "What its task returned: any JSON."),
        ("unknown-job", "not-finished", "no-result"),
    ),
    "GET /jobs/{job_id}/events": Operation(
        "watch_job",
        (
            Answer(200, "Events, until the job has ended.", (_EVENTS,)),
            Answer(204, "It has ended, and Last-Event-ID says that this was told."),
        ),
        _WAITS,
    ),
    "POST /jobs/{job_id}/cancel": Operation(
        "cancel_job",
        (*one(Job, _CANCELLED, "It is CANCELLED."),
         *one(Job, _ASKED_TO_STOP, "It runs, and was asked to stop.", 202)),
        ("unknown-job", "another-key", "job-has-ended"),
    ),
    "POST /jobs/{job_id}/retry": Operation(
        "retry_job",
        one(Replay, PLAN, "The plan of its replay.", 202, ("Location",)),
        ("unknown-job", "job-is-not-dead", "replay-outstanding", "not-replayable"),
    ),
    "GET /job-types": Operation(
        "list_job_types", one(JobTypes, {"job_types": [_TYPE]}, "The catalogue, with JSON schemas.")
    ),
}  # fmt: skip
