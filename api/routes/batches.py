"""Submit many jobs at once."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.audited import actor_of
from api.auth import Context, Submitter, charge_jobs
from api.batch import MAX_JOBS, Asked, read_batch, results
from api.body import read_json
from api.json_text import JsonResponse
from api.problems import FieldError, Problem
from api.routes.jobs import JOB_EXAMPLE, JOB_SCHEMA
from api.runtime import Config
from api.submission import KEY_HEADER, RETENTION_HEADER, Submission, new_job
from storage import batches
from storage.audit import Submitting
from storage.jobs import IdempotencyKey, NewJob

ROUTE = "POST /jobs/batch"

# 500 of each job, if there are as many as may be.
MAX_VALUES = 500_000

router = APIRouter(tags=["jobs"])
Wanted = list[tuple[NewJob, IdempotencyKey]]

BATCH_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "title": "Batch",
                    "type": "object",
                    "required": ["jobs"],
                    "additionalProperties": False,
                    "properties": {
                        "jobs": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": MAX_JOBS,
                            "items": JOB_SCHEMA
                            | {
                                "title": "BatchedSubmission",
                                "required": ["type", "payload", "idempotency_key"],
                            },
                        }
                    },
                },
                "example": {"jobs": [JOB_EXAMPLE]},
            }
        },
    },
}


@router.post(
    "/jobs/batch",
    status_code=202,
    summary="Submit up to 1,000 jobs",
    openapi_extra=BATCH_SCHEMA,
)
async def submit(request: Request, runtime: Context, principal: Submitter) -> Response:
    """Each job has its own `idempotency_key`, valid for this route, so the same batch may be sent again.

    `results` has one entry for each job, in the order of the batch: `status` 202 with `id`, `location` and
    `replayed`, or that of a refusal, with what `POST /jobs` would say. The answer is 202 when every job was
    accepted, 207 when some were not; all that were are committed together. 503 with `Retry-After` while the
    outbox is full: nothing is stored then.
    """
    if KEY_HEADER in request.headers:
        fault = FieldError(KEY_HEADER, "does not belong here: each job of a batch has its idempotency_key")
        raise Problem(400, "idempotency-key", f"{KEY_HEADER} {fault.message}", [fault])
    config = runtime.config
    asked, wanted = await read_json(
        request,
        config.api.batch_body_limit,
        lambda body: _read(config, body, principal.name),
        MAX_VALUES,
    )
    charge_jobs(request, runtime, principal, len(asked))
    became: list[batches.BatchedJob] = []
    if wanted:
        scope, told = _scope(principal.name), Submitting(actor_of(request, principal), ROUTE)
        async with runtime.database() as db:
            await runtime.room.require(db, scope, [key.key for _, key in wanted])
            became = await batches.submit(db, scope, wanted, told)
    if new := sum(not (each.replayed or each.conflict) for each in became):
        runtime.relay.submitted(new)
    shown = results(asked, became)
    accepted = [each for each in shown if each["status"] == 202]
    counts = {
        "accepted": len(accepted),
        "replayed": sum(each["replayed"] for each in accepted),
        "refused": len(shown) - len(accepted),
    }
    status = 202 if len(accepted) == len(shown) else 207
    headers = {RETENTION_HEADER: f"{config.api.idempotency_retention_s:.0f}"}
    return JsonResponse({**counts, "results": shown}, status, headers)


def _read(config: Config, body: Any, principal: str) -> tuple[list[Asked], Wanted]:
    asked = read_batch(config.topology, body, config.api.body_limit, config.callbacks)
    valid = (each for each in asked if isinstance(each, Submission))
    return asked, [
        (new_job(each, principal), IdempotencyKey(_scope(principal), each.key, each.request))
        for each in valid
    ]


def _scope(principal: str) -> str:
    return f"{principal} {ROUTE}"
