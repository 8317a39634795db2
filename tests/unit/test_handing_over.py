"""The header in which an outcome goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.delivery import TaskMessage
from topology.headers import ATTEMPT, OUTCOME, Attempt
from topology.messages import task_message
from topology.spec import WorkQueue
from topology.wire import split
from workers import republish
from workers.arrival import Arrival
from workers.completing import Finished
from workers.handing_over import LARGEST, decode, encode, is_due, message_with_outcome
from workers.outcomes import Crashed, Dead, Failure, Outcome, Retry, Returned, Succeeded

FAILURE = Failure("shop.Broken", "it broke: é", "Traceback …")
OUTCOMES: list[Outcome] = [
    Succeeded(b'{"n": 1}'),
    Succeeded(None),
    Retry(2.5, b"[[], {}, {}]", {"priority": 3, "queue": "work"}, FAILURE, counted=False),
    Dead("exhausted", FAILURE),
    Dead("revoked"),
    Crashed("hard_timeout", FAILURE),
    Returned(5.0),
]


def finished(outcome: Outcome, queue: WorkQueue | None = None) -> Finished:
    message = task_message("job", "t", {"x": 1})
    task = TaskMessage("job", "t", [], {"x": 1}, {}, 2)
    arrival: Any = Arrival(
        None, task, queue or WorkQueue("work"), message.properties, message.body, 1, 10,  # type: ignore[arg-type]
        attempt=Attempt(2, 3),
    )  # fmt: skip
    return Finished(arrival, outcome)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_an_outcome_comes_out_as_it_went_in(outcome: Outcome) -> None:
    run = finished(outcome)
    assert decode(encode(run)) == (run.arrival.token, outcome)


def test_the_message_stands_for_the_attempt_that_ran_and_loses_its_outcome_with_the_next() -> None:
    run = finished(Succeeded(b"1"))
    value = encode(run)
    assert value is not None
    message = message_with_outcome(run, value, "token", None)
    properties = split(message.properties)
    assert (properties.get_header(ATTEMPT), properties.get_header(OUTCOME)) == ("2.3", value)
    assert message.body == run.arrival.raw_body
    again = republish.again(message.properties, b"", attempt=Attempt(), token="t", due_ms=None)
    assert split(again.properties).get_header(OUTCOME) is None


def test_a_large_traceback_is_left_out_and_a_large_result_does_not_go() -> None:
    failure = replace(FAILURE, traceback="é" * 40_000)
    run = finished(Dead("exception", failure))
    assert decode(encode(run)) == (run.arrival.token, Dead("exception", replace(failure, traceback="")))
    assert encode(finished(Succeeded(b'"' + b"x" * LARGEST + b'"'))) is None


def header(**fields: object) -> str:
    good = {"version": 1, "claim": "0b7ba8f6-4f0c-4a8e-9a53-3f8a8f2b6c11", "kind": "succeeded", "outcome": {}}
    return json.dumps(good | fields)


def test_the_form_that_is_spoiled_below_is_read() -> None:
    assert decode(header()) is not None


@pytest.mark.parametrize(
    "value",
    [
        None, 5, b"{}", [], {}, "", "{", "[]", "{}", "null", '{"version": 1}', "[" * 100_000,
        header(version=2),
        header(claim="x"),
        header(claim=7),
        header(kind="paused"),
        header(kind=["x"]),
        header(kind="dead", outcome={"reason": "bored"}),
        header(kind="returned", outcome={"delay_s": float("nan")}),
        header(kind="retry", outcome={"delay_s": 1e300}),
        header(kind="retry", outcome={"delay_s": 1, "options": 1}),
    ],
)  # fmt: skip
def test_what_is_no_outcome_of_ours_is_none(value: object) -> None:
    assert decode(value) is None


@given(st.text())
def test_no_text_raises(value: str) -> None:
    decode(value)


def test_it_is_due_before_the_broker_takes_the_message_back() -> None:
    run = finished(Succeeded(), WorkQueue("work", consumer_timeout_s=100, time_limit_s=50)).arrival
    assert [is_due(run, run.received + seconds) for seconds in (0, 74, 75)] == [False, False, True]
    unsaid = finished(Succeeded()).arrival
    assert [is_due(unsaid, unsaid.received + seconds) for seconds in (1_000, 1_400)] == [False, True]
