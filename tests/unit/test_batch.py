"""What a batch must look like, and that one bad job refuses only itself."""

from __future__ import annotations

from typing import Any

import pytest

from api.batch import MAX_JOBS, TOLD_IN_FULL, read_batch, results
from api.problems import Problem
from api.submission import Submission
from storage.batches import BatchedJob
from topology.catalogue import TOPOLOGY

LIMIT = 1_000


def job(key: str, **changed: Any) -> dict[str, Any]:
    payload = {"order_id": "o", "amount_cents": 5, "currency": "EUR", **changed}
    return {"type": "payments.charge_order", "payload": payload, "idempotency_key": key}


def hook(key: str, text: str) -> dict[str, Any]:
    payload = {"event_id": "e", "kind": "k", "data": {"text": text}}
    return {"type": "webhooks.handle_webhook", "payload": payload, "idempotency_key": key}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (None, "body"),
        ([], "body"),
        ({}, "jobs"),
        ({"jobs": {}}, "jobs"),
        ({"jobs": [job("a")], "more": 1}, "more"),
        ({"jobs": []}, "jobs"),
        ({"jobs": [None] * (MAX_JOBS + 1)}, "jobs"),
    ],
)
def test_what_is_no_batch_is_refused_as_a_whole(body: Any, field: str) -> None:
    with pytest.raises(Problem) as caught:
        read_batch(TOPOLOGY, body, LIMIT)
    assert (caught.value.status, [error.field for error in caught.value.errors]) == (422, [field])


def test_each_bad_job_refuses_itself_and_names_its_field() -> None:
    without = {name: value for name, value in job("x").items() if name != "idempotency_key"}
    large, wide = hook("l", "o" * LIMIT), hook("w", "é" * 400)
    found = read_batch(TOPOLOGY, {"jobs": [job("a"), without, None, large, wide, job("b", x=1)]}, LIMIT)
    told = [
        each.key if isinstance(each, Submission) else (each.status, each.errors[0].field) for each in found
    ]
    assert told == [
        "a",
        (400, "idempotency_key"),
        (422, "body"),
        (413, "payload"),
        "w",  # counted in UTF-8, not in escapes
        (422, "payload.x"),
    ]


def test_results_stand_in_the_order_of_the_batch_and_stay_small() -> None:
    bad = {"type": 5, "payload": 6, "idempotency_key": "k"}
    asked = read_batch(TOPOLOGY, {"jobs": [job("a"), *[bad] * 30, job("b"), job("c")]}, LIMIT)
    became = [BatchedJob("1", False), BatchedJob("2", True), BatchedJob("3", False, conflict=True)]
    told = results(asked, became)
    assert told[0] == {"status": 202, "id": "1", "location": "/jobs/1", "replayed": False}
    assert told[31] == {"status": 202, "id": "2", "location": "/jobs/2", "replayed": True}
    assert (told[32]["status"], told[32]["type"]) == (422, "urn:redrive:problem:idempotency-conflict")
    errors = [len(each["errors"]) + each.get("more_errors", 0) for each in told[1:31]]
    listed = [len(each["errors"]) for each in told[1:31]]
    assert errors == [2] * 30
    assert listed == [2] * (TOLD_IN_FULL - 1) + [1] * (31 - TOLD_IN_FULL)
