"""What can go wrong, as types. All of them can be pickled, and none holds the API key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from api.client.values import BatchResult, Job, NewJob


@dataclass(frozen=True)
class FieldFault:
    """What is wrong with one field: a path like `payload.amount_cents`, a header's name, or `body`."""

    field: str
    message: str


class RedriveError(Exception):
    """The root of all errors of the client.

    `idempotency_key`: of the submission that failed. Submitted again with it, the job is made once, whatever
    became of the first try.
    """

    idempotency_key: str | None = None


class NotJson(RedriveError, ValueError):
    """The payload cannot be written as JSON; nothing was sent."""


class Unreachable(RedriveError):
    """No answer came within the time; `tries` requests were sent."""

    tries: int = 0


class OutcomeUnknown(RedriveError):
    """A call that must not be sent twice had no answer: it may have been done or not. Look at the job."""


class UnexpectedAnswer(RedriveError):
    """What answered is not this API, or another release of it."""


class Problem(RedriveError):
    """The API's answer to a request that it did not carry out (RFC 9457).

    `kind` is the stable word for programs, such as `unknown-job`; '' where a proxy answered in its place.
    `errors` are the first faults, `more_errors` the number of the others. `retry_after_s`: when to come
    again.
    """

    def __init__(
        self,
        detail: str,
        status: int = 0,
        kind: str = "",
        errors: Sequence[FieldFault] = (),
        more_errors: int = 0,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.kind = kind
        self.errors = tuple(errors)
        self.more_errors = more_errors
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        faults = "".join(f"; {fault.field}: {fault.message}" for fault in self.errors[:3])
        told = "" if all(fault.message in self.detail for fault in self.errors[:3]) else faults
        return f"{self.status} {self.kind}: {self.detail}{told}"


class Invalid(Problem):
    """400, 413, 415, 422: the request is wrong; `errors` name the fields."""


class IdempotencyConflict(Invalid):
    """422: the key was used for another submission."""


class Unauthorized(Problem):
    """401: the API key is not known, or no longer good."""


class Forbidden(Problem):
    """403: the API key lacks the scope."""


class NotFound(Problem):
    """404: there is no such job."""


class NotAllowed(Problem):
    """409: the job's state does not allow it."""


class RateLimited(Problem):
    """429, still after the time that the client may take."""


class Unavailable(Problem):
    """502, 503 or 504, still after the time that the client may take."""


class ServerFault(Problem):
    """500: a defect of the server."""


class WaitTimeout(RedriveError, TimeoutError):
    """The job has not ended in time. `job` is how it was last."""

    def __init__(self, message: str, job: Job | None = None) -> None:
        super().__init__(message)
        self.job = job


class JobHasNoResult(RedriveError):
    """`job` has none."""

    def __init__(self, message: str, job: Job | None = None) -> None:
        super().__init__(message)
        self.job = job


class NotFinished(JobHasNoResult):
    """It has not ended yet."""


class JobDead(JobHasNoResult):
    """It was given up: `job.reason`, `job.error` and `job.letter_id` tell more."""


class JobCancelled(JobHasNoResult):
    """It was cancelled."""


class BatchUnfinished(RedriveError):
    """Some jobs of `submit_many` are accepted or refused, of others nothing is known.

    `results` has one for each job, in order. Give `unfinished` to `submit_many` to go on: their keys see to
    it that none is made twice.
    """

    def __init__(
        self, message: str, results: Sequence[BatchResult] = (), unfinished: Sequence[NewJob] = ()
    ) -> None:
        super().__init__(message)
        self.results = tuple(results)
        self.unfinished = tuple(unfinished)
