"""Jobs as values: what is submitted, what became of it, and how a job stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias
from uuid import uuid4

from api.client.errors import JobCancelled, JobDead, NotFinished, Problem, RedriveError, UnexpectedAnswer

State: TypeAlias = Literal["PENDING", "QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "DEAD", "CANCELLED"]
FINAL = ("SUCCEEDED", "DEAD", "CANCELLED")


class Model(Protocol):
    """A pydantic model: sent as `model_dump(mode="json", by_alias=True)` writes it."""

    def model_dump(self, *, mode: str, by_alias: bool) -> dict[str, Any]: ...


Payload: TypeAlias = Mapping[str, Any] | Model


def new_key() -> str:
    """For one job, however often it has to be sent."""
    return str(uuid4())


@dataclass(frozen=True)
class NewJob:
    """A job to be submitted.

    Args:
        type: of the catalogue, see `GET /job-types`.
        key: its idempotency key.
        delay_s, not_before: not begun earlier. Seconds from acceptance, or a time with a zone.
        expires: not begun later, but dead-lettered as expired.
        priority: where its queue has priorities.
        callback_url: told of its end; of those in `callback_on`, else of each.
    """

    type: str
    payload: Payload = field(repr=False)
    key: str = field(default_factory=new_key)
    delay_s: float | None = None
    not_before: datetime | None = None
    expires: datetime | None = None
    priority: int | None = None
    # It may hold a secret.
    callback_url: str | None = field(default=None, repr=False)
    callback_on: tuple[State, ...] | None = None


@dataclass(frozen=True)
class Job:
    """A job as the API showed it at one time. `raw` is all that it showed.

    `replayed`: this submission had been accepted before. `replaying`: it is DEAD, and about to run again.
    """

    id: str
    type: str
    queue: str
    state: State
    attempt: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    reason: str | None = None
    error: Any = field(default=None, repr=False, hash=False)
    progress: Any = field(default=None, repr=False, hash=False)
    letter_id: int | None = None
    replayed: bool = False
    replaying: bool = False
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, shown: Any, *, replayed: bool = False) -> Job:
        """Raises UnexpectedAnswer: it is no job."""
        try:
            return cls(
                id=str(shown["id"]),
                type=shown["type"],
                queue=shown["queue"],
                state=shown["state"],
                attempt=shown["attempt"],
                created_at=datetime.fromisoformat(shown["created_at"]),
                started_at=_time(shown["started_at"]),
                finished_at=_time(shown["finished_at"]),
                reason=shown.get("reason"),
                error=shown.get("error"),
                progress=shown.get("progress"),
                letter_id=shown.get("letter_id"),
                replayed=replayed,
                replaying=bool(shown.get("replaying")),
                raw=shown,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnexpectedAnswer(f"the answer is no job: {type(error).__name__} {error}") from error

    @property
    def ended(self) -> bool:
        return self.state in FINAL and not self.replaying

    def result(self) -> Any:
        """What its task returned.

        Raises:
            JobDead, JobCancelled: it has none.
            NotFinished: not yet.
        """
        if self.state == "SUCCEEDED":
            return self.raw.get("result")
        told = f"job {self.id} ({self.type}) is {self.state}"
        if self.state == "DEAD" and self.ended:
            raise JobDead(f"{told}: {self.reason}", self)
        if self.state == "CANCELLED":
            raise JobCancelled(told, self)
        raise NotFinished(f"{told}: it has no result yet", self)


@dataclass(frozen=True)
class Accepted:
    """Committed. `replayed`: it had been before."""

    job: NewJob
    id: str
    replayed: bool


@dataclass(frozen=True)
class Refused:
    """`error` says why: a `Problem` of the API, or `NotJson`."""

    job: NewJob
    error: Problem | RedriveError


@dataclass(frozen=True)
class Unknown:
    """No answer came for it."""

    job: NewJob


BatchResult: TypeAlias = Accepted | Refused | Unknown


@dataclass(frozen=True)
class Replay:
    """The plan by which a dead job runs again; `raw` is all that the API showed."""

    id: str
    state: str
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, shown: Any) -> Replay:
        """Raises UnexpectedAnswer: it is none."""
        try:
            return cls(shown["id"], shown["state"], shown)
        except (KeyError, TypeError) as error:
            raise UnexpectedAnswer(f"the answer is no replay: {type(error).__name__} {error}") from error


def _time(shown: str | None) -> datetime | None:
    return None if shown is None else datetime.fromisoformat(shown)
