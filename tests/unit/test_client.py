"""The client's surface: what it imports, hides and promises."""

from __future__ import annotations

import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import api.client
from api.client import AsyncClient, Client, Job, NewJob, RedriveError, errors
from api.client.answers import Answer
from api.client.calls import NoAnswer, Patience, Pause
from api.client.following import Heard, Listen, NextLine, Tell, follow
from tests.unit.test_client_calls import JOB

ROOT = Path(__file__).parents[2]
KEY = "rdk_secret"
SERVER = ("fastapi", "starlette", "uvicorn", "asyncpg", "pika", "celery", "kombu", "pydantic_settings")


def test_importing_it_loads_nothing_of_the_server() -> None:
    code = "import sys, api.client; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "httpx" in loaded
    assert [name for name in loaded if name.partition(".")[0] in (*SERVER, "storage", "topology")] == []
    ours = [name for name in loaded if name.startswith("api.")]
    assert [name for name in ours if not name.startswith("api.client")] == []


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def methods(of: type) -> dict[str, list[inspect.Parameter]]:
        found = inspect.getmembers(of, inspect.isfunction)
        return {
            name: list(inspect.signature(function).parameters.values())
            for name, function in found
            if not name.startswith("_") or name == "__init__"
        }

    assert methods(Client) == methods(AsyncClient)
    assert len(methods(Client)) > 8


def test_everything_that_is_named_is_there_and_errors_have_one_root() -> None:
    assert [name for name in api.client.__all__ if not hasattr(api.client, name)] == []
    kinds = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, Exception)]
    assert all(issubclass(each, RedriveError) for each in kinds)
    assert {each.__name__ for each in kinds} <= set(api.client.__all__)


def test_errors_can_be_pickled_with_all_they_hold() -> None:
    job, new = Job.of(JOB), NewJob("t", {})
    made: list[RedriveError] = [
        errors.Invalid("why", 422, "invalid", [errors.FieldFault("a", "b")], 2, 1.5),
        errors.WaitTimeout("late", job),
        errors.JobDead("dead", job),
        errors.BatchUnfinished("some", [api.client.Unknown(new)], [new]),
    ]
    for error in made:
        error.idempotency_key = "k"
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_neither_key_nor_payload_is_shown() -> None:
    client = Client("https://jobs.example.com/base", KEY)
    shown = [repr(client), repr(vars(client)), repr(client._http.headers), repr(NewJob("t", {"card": KEY}))]
    assert [text for text in shown if KEY in text] == []
    client.close()


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "jobs.example.com",
            "ftp://h",
            "https://",
            "https://u:rdk_secret@h",
            "http://h/?a=1",
            "http://h#a",
        ),
        *("http://h:abc", "http://h:99999", "http://h:-1", "http://[::1", "http://\ud800", "http://h\n"),
        *("http://h h", " http://h"),
    ],
)
def test_an_address_that_cannot_be_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="the API's address") as raised:
        Client(url, KEY)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("key", ["", "a b", "é", "a\n"])
def test_a_key_that_cannot_be_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="the API key is empty"):
        AsyncClient("https://h", key)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_cannot_be_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Client("https://h", KEY, timeout_s=timeout)


def test_a_wait_for_no_number_of_seconds_is_refused() -> None:
    with Client("http://127.0.0.1:9", KEY) as client, pytest.raises(ValueError, match="no number"):
        client.wait("j1", float("nan"))


def event(state: str, mark: str) -> list[str]:
    return ["event: job", f"id: {mark}", f"data: {json.dumps(JOB | {'state': state})}", ""]


CUT = NoAnswer(EOFError("cut"), arrived=True)
OPENED, OVER = Answer(200, {"content-type": "text/event-stream; charset=utf-8"}), Answer(204, {})


def followed(script: list[Heard]) -> tuple[list[str], list[str]]:
    """States told, and each `Last-Event-ID` that was asked with."""
    now = [0.0]
    steps = follow("j1", Patience(60.0, 10.0, clock=lambda: now[0], chance=lambda: 0.5))
    told: list[str] = []
    asked: list[str] = []
    got: Heard = None
    while True:
        try:
            step = steps.send(got)
        except StopIteration:
            return told, asked
        got = None
        if isinstance(step, Tell):
            told.append(step.job.state)
        elif isinstance(step, Pause):
            now[0] += step.seconds
        elif isinstance(step, Listen):
            asked.append(step.request.headers.get("Last-Event-ID", ""))
            got = script.pop(0)
        else:
            assert isinstance(step, NextLine)
            got = script.pop(0)


def test_events_go_on_after_a_cut_and_none_is_told_twice() -> None:
    done = event("SUCCEEDED", "3")
    first: list[Heard] = [OPENED, "retry: 2000", "", ": alive", "", *event("QUEUED", "1"), CUT]
    # Cut off in the middle of an event: that one comes again.
    second: list[Heard] = [
        OPENED,
        *event("QUEUED", "1"),
        *event("RUNNING", "2"),
        *done[:3],
        CUT,
    ]
    third: list[Heard] = [CUT, Answer(503, {"retry-after": "1"}), OPENED, None, OPENED, *done]
    states, asked = followed([*first, *second, *third])
    assert states == ["QUEUED", "RUNNING", "SUCCEEDED"]
    assert asked == ["", "1", "2", "2", "2", "2"]


def test_events_of_a_job_whose_end_was_told_are_over() -> None:
    assert followed([OPENED, *event("RUNNING", "1"), None, OVER]) == (["RUNNING"], ["", "1"])


def test_events_end_with_the_reason_when_nothing_comes() -> None:
    with pytest.raises(errors.Unreachable):
        followed([OPENED, *event("RUNNING", "1"), *[CUT] * 100])
    empty: list[Heard] = [OPENED, "retry: 2000", "", None]
    # A server that ends every stream at once is not asked for ever, nor all the time.
    with pytest.raises(errors.Unreachable, match="the stream ended"):
        followed([OPENED, *event("RUNNING", "1"), None, *empty * 100])
    with pytest.raises(errors.UnexpectedAnswer):
        followed([Answer(200, {"content-type": "text/html"}), *["<p>"] * 9])
    with pytest.raises(errors.NotFound):
        followed([Answer(404, {}, b"{}")])
    with pytest.raises(errors.UnexpectedAnswer):
        followed([OPENED, "event: job", "data: x", ""])
