"""What a batch of submissions asks for: each of its jobs is found valid, or refused by itself. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from api.json_text import MAX_NAME, encode, shortened
from api.problems import FieldError, Problem
from api.submission import KEY_FIELD, MAX_KEY, Submission, invalid, read_submission
from outbound.destination import MAX_URL
from outbound.reach import Reach
from storage.batches import BatchedJob
from topology.spec import Topology

MAX_JOBS = 1_000
# Refused jobs of which all faults are listed; of the others the first fault, so that an answer stays small.
TOLD_IN_FULL = 20
# Bytes that a valid job has beside its payload, at most: a URL and a key, each character escaped, no more.
MOST_BESIDE = 6 * (MAX_URL + MAX_KEY + 500)
KEY_USED = FieldError(KEY_FIELD, "was used for another request")

Asked = Submission | Problem


def read_batch(topology: Topology, body: Any, item_limit: int, callbacks: Reach | None = None) -> list[Asked]:
    """Each job of a parsed body, or why it is refused.

    Args:
        item_limit: bytes of one job as compact JSON.
        callbacks: where they may lead; None where none are taken.

    Raises:
        Problem: 422, the body is no batch of 1 to `MAX_JOBS` jobs.
    """
    if not isinstance(body, dict):
        raise invalid([FieldError("body", 'must be a JSON object {"jobs": […]}')])
    errors = [
        FieldError(shortened(name, MAX_NAME), "is no field of a batch") for name in body if name != "jobs"
    ]
    if not isinstance(jobs := body.get("jobs"), list):
        errors.append(FieldError("jobs", "must be a list" if "jobs" in body else "is required"))
    if errors or not isinstance(jobs, list):
        raise invalid(errors)
    if not 1 <= len(jobs) <= MAX_JOBS:
        raise invalid([FieldError("jobs", f"has {len(jobs)} jobs; it must have 1 to {MAX_JOBS}")])
    return [_read(topology, job, item_limit, callbacks) for job in jobs]


def results(asked: Sequence[Asked], became: Sequence[BatchedJob]) -> list[dict[str, Any]]:
    """One for each job of the batch, in its order; `became` is of the valid ones."""
    accepted = iter(became)
    return [_result(place, each, accepted) for place, each in enumerate(asked)]


def _result(place: int, asked: Asked, accepted: Iterator[BatchedJob]) -> dict[str, Any]:
    if isinstance(asked, Problem):
        return _refused(place, asked)
    done = next(accepted)
    if done.conflict:
        detail = f"the idempotency key was used for job {done.job_id} with another type, payload or option"
        return _refused(place, Problem(422, "idempotency-conflict", detail, [KEY_USED]))
    return {
        "status": 202,
        "id": done.job_id,
        "location": f"/jobs/{done.job_id}",
        "replayed": done.replayed,
    }


def _refused(place: int, problem: Problem) -> dict[str, Any]:
    told = problem
    if place >= TOLD_IN_FULL and len(problem.errors) > 1:
        first, total = problem.errors[:1], len(problem.errors) + problem.more_errors
        told = Problem(problem.status, problem.kind, first[0].message, first, total=total)
    return told.content


def _read(topology: Topology, job: Any, limit: int, callbacks: Reach | None) -> Asked:
    try:
        found = read_submission(topology, job, callbacks=callbacks)
    except Problem as problem:
        return problem
    # ASCII is never shorter, and quicker to make; of most the payload's length tells enough.
    if len(found.text) + MOST_BESIDE > limit and len(encode(job)) > limit and len(_compact(job)) > limit:
        message = f"larger than {limit} bytes"
        return Problem(413, "too-large", f"this job is {message}", [FieldError("payload", message)])
    return found


def _compact(job: Any) -> bytes:
    return json.dumps(job, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
