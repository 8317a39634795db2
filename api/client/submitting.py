"""Submissions as requests, one or a thousand at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from api.client.answers import Answer, problem_of
from api.client.calls import Patience, Request, Steps, call
from api.client.errors import BatchUnfinished, Invalid, NotJson, RedriveError, UnexpectedAnswer
from api.client.values import Accepted, BatchResult, Job, NewJob, Refused, Unknown

MAX_JOBS = 1_000
# Of a batch's body, well below the server's own default limit: bytes.
MAX_BYTES = 4 * 1024 * 1024
JSON_TYPE = {"Content-Type": "application/json"}
# A body that the server does not read tells of no job: one of them is at fault.
_UNREAD = (400, 413, 422)


def submit(job: NewJob, patience: Patience) -> Steps[Job]:
    """Raises RedriveError."""
    request = Request("POST", "/jobs", body=encoded(job), headers=JSON_TYPE, key=job.key)
    answer = yield from call(request, patience)
    return Job.of(answer.json, replayed=answer.headers.get("idempotent-replayed") == "true")


def submit_many(jobs: Iterable[NewJob], patience: Patience) -> Steps[list[BatchResult]]:
    """One result for each job, in their order.

    Raises:
        BatchUnfinished: of some jobs nothing is known; it has what is known of the others.
    """
    every = list(jobs)
    results: list[BatchResult | None] = [None] * len(every)
    texts: dict[int, bytes] = {}
    for place, job in enumerate(every):
        try:
            texts[place] = encoded(job)
        except NotJson as error:
            results[place] = Refused(job, error)
    waiting = list(_parts(texts))
    while waiting:
        part = waiting.pop(0)
        body = b'{"jobs":[' + b",".join(texts[place] for place in part) + b"]}"
        try:
            answer = yield from call(Request("POST", "/jobs/batch", body=body, headers=JSON_TYPE), patience)
            told = _told(answer, [every[place] for place in part])
        except Invalid as error:
            if error.status not in _UNREAD:
                raise _unfinished(every, results, error) from error
            if len(part) > 1:
                half = len(part) // 2
                waiting[:0] = [part[:half], part[half:]]
            else:
                results[part[0]] = Refused(every[part[0]], error)
            continue
        except RedriveError as error:
            raise _unfinished(every, results, error) from error
        for place, result in zip(part, told, strict=True):
            results[place] = result
    return [result for result in results if result is not None]


def encoded(job: NewJob) -> bytes:
    """The submission as JSON. Times must have a zone.

    Raises:
        NotJson: it cannot be written.
    """
    payload = _dumped(job)
    asked: dict[str, Any] = {"type": job.type, "payload": payload, "idempotency_key": job.key}
    asked |= {"delay_s": job.delay_s, "priority": job.priority}
    asked |= {"callback_url": job.callback_url, "callback_on": job.callback_on}
    asked |= {"not_before": _time(job.not_before), "expires": _time(job.expires)}
    asked = {name: value for name, value in asked.items() if value is not None}
    try:
        return json.dumps(asked, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _not_json(job, error) from error


def _dumped(job: NewJob) -> dict[str, Any]:
    try:
        if isinstance(job.payload, Mapping):
            return dict(job.payload)
        return job.payload.model_dump(mode="json", by_alias=True)
    except (AttributeError, TypeError, ValueError) as error:
        raise _not_json(job, error) from error


def _not_json(job: NewJob, error: Exception) -> NotJson:
    made = NotJson(f"the submission of a {job.type} cannot be written as JSON: {error}")
    made.idempotency_key = job.key
    return made


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _parts(texts: dict[int, bytes]) -> Iterator[list[int]]:
    """Places of jobs, as many as go into one batch."""
    part: list[int] = []
    size = 0
    for place, text in texts.items():
        if part and (len(part) == MAX_JOBS or size + len(text) > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(place)
        size += len(text) + 1
    if part:
        yield part


def _told(answer: Answer, jobs: Sequence[NewJob]) -> list[BatchResult]:
    try:
        results = answer.json["results"]
        return [_result(job, result) for job, result in zip(jobs, results, strict=True)]
    except (KeyError, TypeError, ValueError) as error:
        raise UnexpectedAnswer(f"the answer is none to a batch: {type(error).__name__} {error}") from error


def _result(job: NewJob, result: Any) -> BatchResult:
    if result["status"] == 202:
        return Accepted(job, result["id"], result["replayed"])
    problem = problem_of(result, result["status"])
    problem.idempotency_key = job.key
    return Refused(job, problem)


def _unfinished(
    jobs: Sequence[NewJob], results: Sequence[BatchResult | None], error: RedriveError
) -> BatchUnfinished:
    told = [result or Unknown(job) for job, result in zip(jobs, results, strict=True)]
    left = [result.job for result in told if isinstance(result, Unknown)]
    return BatchUnfinished(f"of {len(left)} of {len(told)} jobs nothing is known: {error}", told, left)
