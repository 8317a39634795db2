"""What people do with jobs; who, when, why and from where is kept with the job."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from api.auth import Context, Operator, Requires
from api.body import as_model, body_schema, read_json
from api.job_reading import find_job, read_job
from api.json_text import JsonResponse
from api.problems import Problem
from api.routes.replays import refused
from api.slashes import JobId
from storage import job_actions
from storage.api_keys import Principal
from storage.job_actions import MAX_NOTE, JobActionRefusedError, Who
from storage.replay_fitness import Fitness
from storage.replays import ReplayRefusedError

router = APIRouter(tags=["jobs"])
Canceller = Annotated[Principal, Depends(Requires("submit", "operate"))]


class JobWhy(BaseModel):
    """Why."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    note: Annotated[str, Field(max_length=MAX_NOTE, pattern=r"^[^\x00]*$")] = ""


CANCEL = body_schema(JobWhy, {"note": "the customer withdrew the order"})
RETRY = body_schema(JobWhy, {"note": "the provider is back"})


@router.post("/jobs/{job_id}/cancel", summary="Cancel a job, or ask it to stop", openapi_extra=CANCEL)
async def cancel(job_id: JobId, request: Request, runtime: Context, principal: Canceller) -> Response:
    """A job that waits is CANCELLED at once: 200 with the job. One that runs is asked to stop: 202.

    Its task sees that with `self.cancelled()` and may end early; it is not tried again when it fails, but if
    it comes to its end, it has SUCCEEDED or is DEAD. One whose worker is lost is taken up again, and asked
    again. 409 when the job has ended otherwise. A key with `submit` cancels the jobs that it submitted, one
    with `operate` any.
    """
    asked = await read_json(request, runtime.config.api.body_limit, _note)
    async with runtime.database() as db:
        job = await find_job(db, job_id)
        if "operate" not in principal.scopes and job.principal != principal.name:
            raise Problem(403, "scope", f"job {job_id} was submitted by another key; that needs 'operate'")
        try:
            ended = await job_actions.cancel(db, job_id, _who(request, principal, asked))
        except JobActionRefusedError as error:
            raise Problem(409, "not-allowed", str(error)) from error
    return JsonResponse((await read_job(runtime, job_id)).view, 200 if ended else 202)


@router.post("/jobs/{job_id}/retry", status_code=202, summary="Run a dead job again", openapi_extra=RETRY)
async def retry(job_id: JobId, request: Request, runtime: Context, principal: Operator) -> Response:
    """A replay of its dead letter, which the dead-letter consumer sends: the answer is the plan.

    Checked is what `POST /replays` checks without asking the broker: state and laps, not queue and size. 409
    when the job is not DEAD, its letter is not stored yet (with `Retry-After`) or gone, or a replay of it is
    outstanding.
    """
    asked = await read_json(request, runtime.config.api.body_limit, _note)
    async with runtime.database() as db:
        await find_job(db, job_id)
        try:
            plan = await job_actions.retry(
                db, job_id, _who(request, principal, asked), Fitness(most_laps=runtime.config.replays.laps)
            )
        except JobActionRefusedError as error:
            headers = {"Retry-After": "1"} if error.soon else None
            raise Problem(409, "not-allowed", str(error), headers=headers) from error
        except ReplayRefusedError as error:
            raise refused(error) from error
    return JsonResponse(plan.as_json(), 202, {"Location": f"/replays/{plan.id}"})


def _who(request: Request, principal: Principal, asked: JobWhy) -> Who:
    return Who(principal.name, asked.note, request.client.host if request.client else None)


def _note(body: Any) -> JobWhy:
    return as_model(JobWhy, body)
