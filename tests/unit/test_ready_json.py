"""Large results are shown as they were stored, and not taken apart for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from api.job_view import job_view
from api.json_text import JsonResponse
from api.ready_json import MAX_READ, Ready, shown_json, written
from storage.jobs import Job
from storage.stored_json import stored

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = Job(
    id="j", type="t", queue="q", state="SUCCEEDED", generation=1, attempt=1, origin="redrive-api",
    principal="me", payload=b"{}", progress=None, result=None, reason=None, error=None, letter_id=None,
    created_at=NOW, queued_at=NOW, started_at=NOW, finished_at=NOW,
)  # fmt: skip
FILLING = "x" * MAX_READ


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, {"b": '\\"NaN" Infinity \ud800 é \n'}], "c": FILLING},
        [-1e308, 10**300, FILLING],
        FILLING,
        [f"{FILLING}NaN", 1],
    ],
)
def test_a_long_result_is_shown_as_it_was_stored(value: Any) -> None:
    text = json.dumps(value).encode()
    assert shown_json(text) == Ready(text)
    shown = written(job_view(replace(JOB, result=text, progress=text), ()))
    assert text in shown
    assert b"\n" not in shown
    told = json.loads(shown)
    assert (told["result"], told["progress"], told["id"]) == (value, value, "j")
    assert json.loads(bytes(JsonResponse(shown_json(text)).body)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'["%s", NaN, -Infinity]', [FILLING, {"$float": "NaN"}, {"$float": "-Infinity"}]),
        (b'["%s",\n1]', [FILLING, 1]),
        (b'["%s", "\xc3\xa9"]', [FILLING, "é"]),
    ],
)
def test_what_is_no_strict_json_in_ascii_and_one_line_is_taken_apart(text: bytes, value: Any) -> None:
    shown = written(shown_json(text % FILLING.encode()))
    assert json.loads(shown, parse_constant=pytest.fail) == value
    assert shown.isascii()
    assert b"\n" not in shown


def test_what_is_no_json_is_a_defect() -> None:
    with pytest.raises(TypeError, match="object is no JSON"):
        written({"a": object()})


def test_a_large_result_costs_a_small_part_of_taking_it_apart() -> None:
    text = json.dumps([{"a": number, "b": ["x", 1.5, None]} for number in range(20_000)]).encode()
    job = replace(JOB, result=text)
    apart = quickest(lambda: json.dumps(job_view(replace(JOB), ()) | {"result": stored(text)}))
    assert quickest(lambda: written(job_view(job, ()))) < apart / 5


def quickest(do: Callable[[], object]) -> float:
    """Seconds of the processor."""
    took = []
    for _ in range(3):
        began = time.process_time()
        do()
        took.append(time.process_time() - began)
    return min(took)
