"""Jobs with a delay, an expiry or a priority, and how long keys are kept; all processes run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.support.all_running import all_running
from tests.support.shared import Places, Shared
from tests.support.stack import Stack
from tests.support.waiting import eventually

TYPE = "webhooks.handle_webhook"


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Stack]]:
    with all_running(places) as shared:
        yield shared


def body(key: str, **options: Any) -> dict[str, Any]:
    payload = {"event_id": key, "kind": "k", "data": {}}
    return {"type": TYPE, "payload": payload, "idempotency_key": key, **options}


def submit(stack: Stack, key: str, **options: Any) -> str:
    answer = stack.http.post("/jobs", json=body(key, **options))
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_delayed_jobs_run_when_they_are_due_and_not_before(running: Stack) -> None:
    due = datetime.now(UTC) + timedelta(seconds=6)
    later = submit(running, "a", delay_s=6)
    timed = submit(running, "b", not_before=due.isoformat())
    batch = running.http.post("/jobs/batch", json={"jobs": [body("c", delay_s=6), body("d")]}).json()
    at_once = running.until(batch["results"][1]["id"], "SUCCEEDED")
    shown = running.job(later)
    assert (shown["state"], shown["outbox"]["not_before"]) == ("PENDING", shown["not_before"])
    queues = running.http.get("/queues").json()["queues"]
    waiting = next(queue["outbox"] for queue in queues if queue["name"] == "webhooks")
    assert (waiting["delayed"], waiting["messages"], waiting["oldest_seconds"]) == (3, 0, 0.0)
    for job in (later, timed, batch["results"][0]["id"]):
        ended = running.until(job, "SUCCEEDED")
        assert at(ended["started_at"]) >= at(ended["not_before"])
        assert at(ended["not_before"]) - at(ended["created_at"]) > timedelta(seconds=2)
    assert at(running.job(timed)["not_before"]) == due
    assert at(at_once["started_at"]) < due


def test_a_delayed_job_is_cancelled_before_anything_is_published(running: Stack) -> None:
    job = submit(running, "a", delay_s=3600)
    assert running.http.post(f"/jobs/{job}/cancel", json={}).json()["state"] == "CANCELLED"
    assert running.database.value("select count(*) from redrive.outbox") == 0


def test_a_job_that_is_over_is_dead_lettered_as_expired(running: Stack) -> None:
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    dead = running.until(submit(running, "a", expires=past), "DEAD")
    assert (dead["reason"], dead["attempts"], at(dead["expires"])) == ("expired", [], at(past))
    ahead = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert running.until(submit(running, "b", expires=ahead), "SUCCEEDED")["expires"] is not None


def test_options_belong_to_the_request_of_a_key_and_bad_ones_store_nothing(running: Stack) -> None:
    job = submit(running, "a", delay_s=3600, priority=7)
    assert submit(running, "a", delay_s=3600, priority=7) == job
    others: list[dict[str, Any]] = [{}, {"delay_s": 3601, "priority": 7}, {"delay_s": 3600}]
    for options in others:
        assert running.http.post("/jobs", json=body("a", **options)).status_code == 422
    bad: list[tuple[dict[str, Any], str]] = [
        ({"not_before": "2026-01-01T00:00:00"}, "not_before"),
        ({"expires": "9999-12-31T23:59:59Z"}, "expires"),
        ({"delay_s": 1e300}, "delay_s"),
        ({"priority": 256}, "priority"),
    ]
    for options, field in bad:
        refused = running.http.post("/jobs", json=body("b", **options))
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)
    assert running.database.value("select count(*) from redrive.jobs") == 1
    assert running.database.value("select count(*) from redrive.job_options") == 1
    assert running.job(job)["priority"] == 7


def test_keys_are_kept_as_long_as_the_answer_says_and_then_deleted_in_batches(stack: Stack) -> None:
    stack.apply_topology()
    stack.database.execute(
        "with job as (insert into redrive.jobs (id, type, queue) values ('old', 't', 'q') returning id)"
        " insert into redrive.idempotency_keys (scope, key, request, job_id, created_at)"
        " select 's', n::text, '', id, now() - interval '1 hour' * case when n > 2500 then 0.9 else 2 end"
        " from job, generate_series(1, 2510) n"
    )
    stack.start_api(REDRIVE_API_IDEMPOTENCY_RETENTION_S="3600")
    answer: httpx.Response = stack.http.post("/jobs", json=body("a"))
    assert answer.headers["idempotency-retention"] == "3600"
    keys = "select count(*) from redrive.idempotency_keys where scope = 's'"
    eventually(lambda: stack.database.value(keys) == 10, 30, "the old keys are deleted, in three batches")
    again = stack.http.post("/jobs", json=body("a"))
    assert (again.headers["idempotent-replayed"], again.json()["id"]) == ("true", answer.json()["id"])
    # A key whose time is over, and which is gone, may make another job.
    stack.database.execute("delete from redrive.idempotency_keys where key = 'a'")
    assert stack.http.post("/jobs", json=body("a")).json()["id"] != answer.json()["id"]
    assert (
        stack.http.post("/jobs/batch", json={"jobs": [body("b")]}).headers["idempotency-retention"] == "3600"
    )
