"""What a receiver is told when a job has ended, as OpenAPI describes a request that the API's side makes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from api.openapi import story
from api.openapi.job_models import AttemptNumber, Final, Generation, JobId, Why
from api.openapi.schema import Shown, Time, Uuid, ref


class EndedJob(Shown):
    """The end of the job as it was, also when it has been replayed since."""

    id: JobId
    type: str
    queue: str
    state: Final
    generation: Generation
    attempt: AttemptNumber
    reason: Why
    created_at: Time
    finished_at: Time | None
    result: Any = Field(description="null where it has none, or where it is left out")
    error: str | None = Field(description="of 4,000 characters at most")


class JobEnded(Shown):
    """Told at least once, under one `id`: a receiver takes each once."""

    id: Uuid = Field(description="as in the header `Redrive-Delivery`")
    event: Literal["job.ended"]
    job: EndedJob
    result_left_out: int | None = Field(description="bytes of a result of more than 64 KiB")
    sent_at: Time


EXAMPLE: dict[str, Any] = {
    "id": story.CALLBACK,
    "event": "job.ended",
    "job": {
        "id": story.JOB, "type": story.TASK, "queue": story.QUEUE, "state": "SUCCEEDED", "generation": 2,
        "attempt": 1, "reason": None, "created_at": story.ACCEPTED, "finished_at": story.SUCCEEDED,
        "result": story.RESULT, "error": None,
    },
    "result_left_out": None,
    "sent_at": story.at("12:30:01.149822"),
}  # fmt: skip


def _header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": True, "description": description,
            "schema": {"type": "string"}}  # fmt: skip


# https://spec.openapis.org/oas/v3.1.0#callback-object
CALLBACKS: dict[str, Any] = {
    "job.ended": {
        "{$request.body#/callback_url}": {
            "post": {
                "summary": "The job has ended",
                "operationId": "job_ended",
                "parameters": [
                    _header("Redrive-Delivery", "the same however often it is sent"),
                    _header("Redrive-Signature", "`t=<unix seconds>,v1=<hex>`, an HMAC-SHA256"),
                ],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": ref(JobEnded.__name__), "example": EXAMPLE}},
                },
                "responses": {
                    "2XX": {"description": "It is taken."},
                    "410": {"description": "It is not sent again."},
                    "default": {"description": "It is sent again, later."},
                },
            }
        }
    }
}
