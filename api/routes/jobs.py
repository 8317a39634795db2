"""Submit jobs, and follow them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.audited import actor_of
from api.auth import Context, Reader, Submitter, may_submit, runtime_at
from api.body import read_json
from api.callback import CALLBACK_SCHEMA
from api.holding import hold
from api.job_reading import answer, answer_of, find_job, read_job, read_once_ended
from api.job_view import accepted_view
from api.job_watch import MAX_WAITING
from api.json_text import JsonResponse
from api.options import OPTIONS_SCHEMA
from api.problems import FieldError, Problem
from api.runtime import Config, Runtime
from api.slashes import JobId
from api.submission import KEY_HEADER, RETENTION_HEADER, new_job, read_submission
from storage import jobs
from storage.audit import Submitting
from storage.jobs import Accepted, IdempotencyConflictError, IdempotencyKey, NewJob
from topology.spec import Topology

PATH = "/jobs"
ROUTE = f"POST {PATH}"
MAX_WAIT_S = 60
FINAL_WITHOUT_RESULT = ("DEAD", "CANCELLED")

router = APIRouter(tags=["jobs"])


JOB_SCHEMA: dict[str, Any] = {
    "title": "Submission",
    "type": "object",
    "required": ["type", "payload"],
    "additionalProperties": False,
    "properties": {
        "type": {"type": "string", "description": "see GET /job-types"},
        "payload": {"type": "object", "description": "its schema stands in GET /job-types"},
        "idempotency_key": {"type": "string", "minLength": 1, "maxLength": 255},
        **OPTIONS_SCHEMA,
        **CALLBACK_SCHEMA,
    },
}
JOB_EXAMPLE = {
    "type": "payments.charge_order",
    "payload": {"order_id": "o-1", "amount_cents": 1999, "currency": "EUR"},
    "idempotency_key": "charge-o-1",
}
SUBMISSION_SCHEMA: dict[str, Any] = {
    "parameters": [
        {
            "name": KEY_HEADER,
            "in": "header",
            "required": False,
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
            "description": "Required here or as idempotency_key in the body.",
        }
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": JOB_SCHEMA,
                "example": JOB_EXAMPLE,
            }
        },
    },
}


@router.post(PATH, status_code=202, summary="Submit a job", openapi_extra=SUBMISSION_SCHEMA)
async def submit(request: Request, runtime: Context, principal: Submitter) -> Response:
    """Accept a job: 202 means committed, and published as soon as the broker takes it.

    The same `Idempotency-Key` with the same type and payload gets the same answer, with
    `Idempotent-Replayed: true`, and no second job; with others it is refused (422). A refused request
    does not use its key up. 503 with `Retry-After` while the outbox is full.
    """
    keys = request.headers.getlist(KEY_HEADER)
    new, key = await read_json(
        request, runtime.config.api.body_limit, lambda body: _read(runtime.config, body, keys, principal.name)
    )
    told = Submitting(actor_of(request, principal), ROUTE)
    try:
        accepted = await _accept(runtime, new, key, told)
    except IdempotencyConflictError as conflict:
        raise Problem(
            422,
            "idempotency-conflict",
            str(conflict),
            [FieldError(KEY_HEADER, "was used for another request")],
        ) from conflict
    retention = f"{runtime.config.api.idempotency_retention_s:.0f}"
    headers = {"Location": f"/jobs/{accepted.job.id}", RETENTION_HEADER: retention}
    if accepted.replayed:
        headers["Idempotent-Replayed"] = "true"
    else:
        runtime.relay.submitted()
    return JsonResponse(accepted_view(accepted.job), 202, headers)


def _read(config: Config, body: Any, keys: list[str], principal: str) -> tuple[NewJob, IdempotencyKey]:
    asked = read_submission(config.topology, body, keys, callbacks=config.callbacks)
    return new_job(asked, principal), IdempotencyKey(f"{principal} {ROUTE}", asked.key, asked.request)


async def submit_at_once(request: Request) -> Response:
    """`submit` with what FastAPI would find out for it."""
    return await submit(request, runtime_at(request), await may_submit(request))


async def _accept(runtime: Runtime, new: NewJob, key: IdempotencyKey, told: Submitting) -> Accepted:
    if new.options is None and new.callback is None and not runtime.room.full:
        return await runtime.group_commit.submit(new, key, told)
    async with runtime.database() as db:
        await runtime.room.require(db, key.scope, [key.key])
        return await jobs.submit(db, new, key, told)


@router.get("/jobs/{job_id}", dependencies=[Reader], summary="A job with attempts and history")
async def show(
    job_id: JobId,
    request: Request,
    runtime: Context,
    wait: Annotated[float, Query(ge=0, le=MAX_WAIT_S, description="seconds")] = 0.0,
) -> Response:
    """With `wait`, once the job has ended (SUCCEEDED, DEAD or CANCELLED), or as it is after so many seconds.

    503 when 500 requests wait already, 429 when 125 of the same caller do.
    """
    if wait:
        hold(request, "waiting requests", MAX_WAITING // 4)
        found = await read_once_ended(runtime, request, job_id, wait)
    else:
        found = await read_job(runtime, job_id)
    return await answer(found)


@router.get("/jobs/{job_id}/result", dependencies=[Reader], summary="A finished job's result")
async def result(job_id: JobId, runtime: Context) -> Response:
    """The result as JSON; 409 while there is none, and when there will be none."""
    async with runtime.database() as db:
        job = await find_job(db, job_id)
    if job.state == "SUCCEEDED":
        return await answer_of(job.result)
    if job.state in FINAL_WITHOUT_RESULT:
        raise Problem(409, "no-result", f"job {job.id} is {job.state} ({job.reason}): it has no result")
    raise Problem(
        409,
        "not-finished",
        f"job {job.id} is {job.state}: it has no result yet",
        headers={"Retry-After": "1"},
    )


@router.get("/job-types", dependencies=[Reader], summary="What may be submitted")
async def job_types(runtime: Context) -> Response:
    return JsonResponse({"job_types": job_types_view(runtime.config.topology)})


def job_types_view(topology: Topology) -> list[dict[str, Any]]:
    """The catalogue, each type with the JSON schema of its payload."""
    return [
        {
            "name": job.name,
            "queue": job.queue,
            "summary": job.summary,
            "payload": job.payload.model_json_schema(),
        }
        for job in topology.jobs
    ]
