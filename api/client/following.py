"""A job's events, read from one stream after another until it has ended. Without I/O.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias

from api.client.answers import Answer, error_of
from api.client.calls import NoAnswer, Patience, Pause, Request, next_pause
from api.client.errors import RedriveError, UnexpectedAnswer, Unreachable
from api.client.looking import path_of
from api.client.values import Job

# The server says something every 15 s.
SILENCE_S = 45.0
# A stream without news that ends sooner counts as a failure: some server ends each at once.
WELL_S = 5.0


@dataclass(frozen=True)
class Listen:
    """Open the stream, and give back its answer: of 200 without a body, of others with it."""

    request: Request
    timeout_s: float


@dataclass(frozen=True)
class NextLine:
    """Give back the stream's next line, None at its end, or NoAnswer when it is cut off."""


@dataclass(frozen=True)
class Tell:
    """For the caller."""

    job: Job


Heard: TypeAlias = Answer | NoAnswer | str | None
Following: TypeAlias = Generator[Listen | NextLine | Tell | Pause, Heard, None]


@dataclass
class Event:
    """One event, line by line."""

    name: str = ""
    id: str = ""
    data: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self.name = value
        elif name == "id":
            self.id = value
        elif name == "data":
            self.data.append(value)

    @property
    def job(self) -> Job | None:
        """Raises UnexpectedAnswer."""
        if self.name != "job" or not self.data:
            return None
        try:
            return Job.of(json.loads("\n".join(self.data)))
        except ValueError as error:
            raise UnexpectedAnswer("an event of the job is no JSON") from error


def follow(job: Job | str, patience: Patience) -> Following:
    """The job now and after each change, each once, until it has ended.

    Raises:
        RedriveError: the API refused; or nothing came from it for `patience.total_s` seconds.
    """
    path, last, heard, failures = path_of(job, "events"), "", patience.clock(), 0
    while True:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        request = Request("GET", path, headers=headers)
        got = yield Listen(request, SILENCE_S)
        if isinstance(got, Answer) and got.status == 204:
            return
        if isinstance(got, Answer) and got.status == 200:
            if not got.headers.get("content-type", "").startswith("text/event-stream"):
                raise UnexpectedAnswer(f"GET {path}: no events came: is this the API's address?")
            event, opened = Event(), patience.clock()
            while isinstance(line := (yield NextLine()), str):
                if patience.clock() - opened >= WELL_S:
                    heard, failures = patience.clock(), 0
                if line:
                    event.take(line)
                    continue
                if event.job is not None and event.id != last:
                    last, heard, failures = event.id, patience.clock(), 0
                    yield Tell(event.job)
                    if event.job.ended:
                        return
                event = Event()
            got = line if isinstance(line, NoAnswer) else NoAnswer(EOFError("the stream ended"), arrived=True)
        assert isinstance(got, Answer | NoAnswer)
        failures += 1
        pause = next_pause(request, got, patience, failures)
        if pause is None or patience.clock() + pause - heard >= patience.total_s:
            if isinstance(got, Answer):
                raise error_of(got)
            raise _cut(path, got) from got.error
        yield Pause(pause)


def _cut(path: str, got: NoAnswer) -> RedriveError:
    return Unreachable(f"GET {path}: {type(got.error).__name__}: {got.error}")
