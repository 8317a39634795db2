"""What a request's body may say: letters by the filter of `GET /dead-letters`, and times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from api.filtering import State, Text, TimeText
from storage.letter_filter import LetterFilter
from storage.times import read_time

# As Postgres numbers them.
LetterId = Annotated[int, Field(ge=1, le=2**63 - 1)]


def _in_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("is out of range in UTC") from None


# RFC 3339, with a zone.
Until = Annotated[AwareDatetime, Field(strict=False), AfterValidator(_in_utc)]


class Strict(BaseModel):
    """A body in which every field is known and of its own type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ChosenBy(Strict):
    """Letters that match all that is given, as in `GET /dead-letters`. One field at least."""

    queue: Text | None = None
    reason: Text | None = None
    task: Text | None = None
    exception: Text | None = None
    group: Text | None = None
    state: State | None = None
    undecided: bool = False
    since: TimeText | None = None
    until: TimeText | None = None
    job_id: Text | None = None
    text: Text | None = None

    @property
    def letters(self) -> LetterFilter:
        now = datetime.now(UTC)
        since, until = (read_time(text, now) if text else None for text in (self.since, self.until))
        return LetterFilter(**self.model_dump(exclude={"since", "until"}), since=since, until=until)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.letters.is_open:
            raise ValueError("says nothing, so that every letter would match")
        return self
