"""The query parameters that choose letters: the same ones at every route that takes a filter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Depends, Query
from pydantic import AfterValidator, StringConstraints

from storage.letter_filter import LetterFilter
from storage.times import TIME_FORMS, read_time

# Postgres takes no NUL in a text.
Text = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
State = Literal["open", "replaying", "replayed", "discarded", "quarantined"]


def _is_a_time(text: str) -> str:
    read_time(text, datetime.now(UTC))
    return text


TimeText = Annotated[Text, AfterValidator(_is_a_time)]
Time = Annotated[TimeText, Query(description=f"time of death: {TIME_FORMS}")]


def letter_filter(
    queue: Annotated[Text | None, Query(description="work queue or dead-letter queue")] = None,
    reason: Text | None = None,
    task: Text | None = None,
    exception: Annotated[Text | None, Query(description="type of the exception")] = None,
    group: Annotated[Text | None, Query(description="fingerprint of the group")] = None,
    state: State | None = None,
    undecided: Annotated[bool, Query(description="not decided on, or of unknown outcome")] = False,
    since: Time | None = None,
    until: Time | None = None,
    job_id: Text | None = None,
    text: Annotated[Text | None, Query(description="stands in the body")] = None,
) -> LetterFilter:
    """All that is given must hold."""
    now = datetime.now(UTC)
    return LetterFilter(
        queue=queue, reason=reason, task=task, exception=exception, group=group, state=state,
        undecided=undecided, since=read_time(since, now) if since else None,
        until=read_time(until, now) if until else None, job_id=job_id, text=text,
    )  # fmt: skip


Filter = Annotated[LetterFilter, Depends(letter_filter)]
