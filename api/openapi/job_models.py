"""What is shown of jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from api.openapi.schema import Count, LeftOut, NextCursor, Shown, Time, Uuid

State = Literal["PENDING", "QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "DEAD", "CANCELLED"]
Final = Literal["SUCCEEDED", "DEAD", "CANCELLED"]
JobId = Annotated[str, Field(min_length=1, max_length=255)]
Outcome = Literal["running", "succeeded", "retry", "failed", "lost", "returned"]
Generation = Annotated[int, Field(ge=1, description="1, and one more after each replay")]
AttemptNumber = Annotated[int, Field(ge=1, description="from 1 in each generation")]
Why = Annotated[
    str | None,
    Field(
        description="why it died or was not done: exception, exhausted, hard_timeout, worker_lost, expired, …"
    ),
]


class Attempt(Shown):
    """One run of a job."""

    generation: Generation
    attempt: AttemptNumber
    worker: str
    outcome: Outcome
    reason: Why
    exception_type: str | None
    message: str | None
    traceback: str | None
    delay_ms: int | None = Field(description="the wait after a retry, in milliseconds")
    started_at: Time
    ended_at: Time | None


class HistoryStep(Shown):
    """A state that the job came to."""

    at: Time
    state: State
    generation: int | LeftOut = Field(None, description="of the attempt that begins or ends here")
    attempt: int | LeftOut = None
    outcome: Outcome | LeftOut = None
    reason: str | None = None


class JobAction(Shown):
    """What somebody asked for; `state` and `generation` are the job's before it."""

    action: Literal["cancel", "retry"]
    at: Time
    by: str = Field(description="the caller: the name of its key")
    note: str
    came_from: str | None = Field(description="address of the peer")
    state: State
    generation: Generation
    replay_id: Uuid | None


class Unsent(Shown):
    """The job's message while the broker has not confirmed it."""

    not_before: Time = Field(description="published from then on")
    tries: Count
    last_error: str | None = Field(description="why the broker refused it")


class CallbackAnswer(Shown):
    """What came of one try: a status, or why there was none."""

    at: Time
    status: int | LeftOut = None
    error: str | LeftOut = None


class CallbackDelivery(Shown):
    """A callback for one end of the job."""

    id: Uuid
    generation: Generation
    job_state: Final
    state: Literal["pending", "delivered", "dead"]
    tries: Count
    next_try_at: Time | None
    ended_at: Time | None
    why_dead: str | None
    last_answer: CallbackAnswer | None


class CallbackOfJob(Shown):
    """Who is told of its end, and whether that worked."""

    url: str = Field(description="without its query and fragment")
    on: list[Final]
    deliveries: list[CallbackDelivery]


class AcceptedJob(Shown):
    """The job as it was when it was accepted: the same to every repetition of the request."""

    id: JobId
    type: str
    queue: str
    state: Literal["PENDING"]
    attempt: Literal[1]
    created_at: Time
    started_at: None
    finished_at: None
    result: None
    error: None
    attempts: list[Attempt] = Field(max_length=0)
    history: list[HistoryStep] = Field(min_length=1, max_length=1)


class ListedJob(Shown):
    """A job without what may be long."""

    id: JobId
    type: str
    queue: str
    state: State
    generation: Generation
    attempt: int = Field(ge=1, description="the one that runs, else the next one")
    reason: Why
    created_at: Time
    started_at: Time | None = Field(description="of the first attempt")
    finished_at: Time | None
    error: str | None
    letter_id: int | None = Field(description="its dead letter, while it is DEAD")


class Job(ListedJob):
    """A job with its attempts, its history, and what people did with it."""

    progress: Any = Field(description="what its task last said of it")
    result: Any = Field(description="what its task returned; null until it has SUCCEEDED")
    not_before: Time | None
    expires: Time | None
    priority: int | None
    outbox: Unsent | None = Field(description="null once the broker has its message")
    callback: CallbackOfJob | None
    submitted_by: str | None = Field(description="null for a job that another Celery program published")
    cancel_requested: bool
    replaying: bool = Field(description="it is DEAD, and a replay of its letter is not over")
    attempts: list[Attempt] = Field(description="the oldest first")
    history: list[HistoryStep] = Field(description="the oldest first")
    actions: list[JobAction]


class JobList(Shown):
    jobs: list[ListedJob]
    next_cursor: NextCursor


class JobTypeShown(Shown):
    name: str
    queue: str
    summary: str
    payload: dict[str, Any] = Field(description="JSON schema")


class JobTypes(Shown):
    job_types: list[JobTypeShown]


class BatchAccepted(Shown):
    status: Literal[202]
    id: JobId
    location: str
    replayed: bool = Field(description="it had been accepted before, under the same key")
