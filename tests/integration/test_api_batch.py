"""Batches of jobs over HTTP, through real uvicorn processes, RabbitMQ and Postgres."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import httpx

from tests.support.stack import Stack
from tests.support.waiting import eventually

MIB = 1_048_576
CUT = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where application_name = 'redrive-api' and datname = current_database()"
)


def job(key: str, **changed: Any) -> dict[str, Any]:
    payload = {"order_id": f"o-{key}", "amount_cents": 5, "currency": "EUR", **changed}
    return {"type": "payments.charge_order", "payload": payload, "idempotency_key": key}


def count(stack: Stack, table: str = "jobs") -> int:
    return int(stack.database.value(f"select count(*) from redrive.{table}"))


def test_a_thousand_jobs_are_accepted_and_published_in_their_order(running: Stack) -> None:
    jobs = [job(f"k{number:04}") for number in range(1_000)]
    answer = running.http.post("/jobs/batch", json={"jobs": jobs})
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert (told["accepted"], told["replayed"], told["refused"]) == (1_000, 0, 0)
    rows = running.database.fetch(
        "select j.payload, k.key, j.principal from redrive.jobs j"
        " join redrive.idempotency_keys k on k.job_id = j.id"
        " where j.id = any($1::text[]) order by array_position($1::text[], j.id)",
        [result["id"] for result in told["results"]],
    )
    assert [row["key"] for row in rows] == [job["idempotency_key"] for job in jobs]
    assert [json.loads(row["payload"]) for row in rows] == [job["payload"] for job in jobs]
    eventually(lambda: count(running, "outbox") == 0, 30, "all are published")
    assert running.depth("payments") == 1_000
    first = running.vhost.get("payments")[0]
    assert first["properties"]["message_id"] == told["results"][0]["id"]
    shown = running.job(told["results"][0]["id"])
    assert (shown["id"], shown["queue"]) == (told["results"][0]["id"], "payments")


def test_a_batch_sent_again_makes_no_second_job_and_takes_what_was_refused(running: Stack) -> None:
    sent = [job("a"), job("b", amount_cents=-1), job("a"), job("a", amount_cents=6), {"type": "nope"}]
    first = running.http.post("/jobs/batch", json={"jobs": sent})
    assert first.status_code == 207
    one, two, same, other, unknown = first.json()["results"]
    assert (one["status"], one["replayed"]) == (202, False)
    assert (two["status"], two["errors"][0]["field"]) == (422, "payload.amount_cents")
    assert (same["status"], same["id"], same["replayed"]) == (202, one["id"], True)
    assert (other["status"], other["type"]) == (422, "urn:redrive:problem:idempotency-conflict")
    assert (unknown["status"], unknown["errors"][0]["field"]) == (400, "idempotency_key")
    assert count(running) == 1

    mended = [job("b"), job("a")]
    again = running.http.post("/jobs/batch", json={"jobs": mended})
    assert again.status_code == 202
    assert [result["replayed"] for result in again.json()["results"]] == [False, True]
    assert again.json()["results"][1]["id"] == one["id"]
    assert count(running) == count(running, "idempotency_keys") == 2


def test_equal_batches_at_once_in_any_order_on_two_processes_make_each_job_once(running: Stack) -> None:
    key, first = running.http.headers["Authorization"], str(running.http.base_url)
    running.start_api()
    urls = [first, str(running.http.base_url)]
    jobs = [job(f"k{number:03}") for number in range(200)]

    def send(number: int) -> httpx.Response:
        turned = jobs if number % 3 else jobs[::-1]
        headers = {"Authorization": key}
        return httpx.post(
            f"{urls[number % 2]}/jobs/batch", json={"jobs": turned}, headers=headers, timeout=60
        )

    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(send, range(12)))
    assert {answer.status_code for answer in answers} == {202}
    ids = {frozenset(result["id"] for result in answer.json()["results"]) for answer in answers}
    assert len(ids) == 1
    assert sum(answer.json()["replayed"] for answer in answers) == 11 * 200
    assert count(running) == 200
    eventually(lambda: count(running, "outbox") == 0, 30, "all are published")
    assert running.depth("payments") == 200


def test_keys_belong_to_the_caller_and_to_the_route(running: Stack) -> None:
    single = running.http.post("/jobs", json=job("a")).json()["id"]
    batch = running.http.post("/jobs/batch", json={"jobs": [job("a")]}).json()["results"][0]
    assert (batch["replayed"], batch["id"] == single) == (False, False)
    other = json.loads(running.command("api.keys_cli:main", "create", "another", "--json").stdout)["key"]
    headers = {"Authorization": f"Bearer {other}"}
    theirs = running.http.post("/jobs/batch", json={"jobs": [job("a")]}, headers=headers).json()
    assert theirs["results"][0]["replayed"] is False
    assert count(running) == 3


def test_bad_batches_are_problems_and_store_nothing(running: Stack) -> None:
    api, many = running.http, json.dumps({"jobs": [job("k")] * 1_001}).encode()
    cases: list[tuple[int, str, dict[str, Any]]] = [
        (400, "body", {"content": b"{"}),
        (400, "Idempotency-Key", {"json": {"jobs": [job("k")]}, "headers": {"Idempotency-Key": "k"}}),
        (413, "body", {"content": b" " * (8 * MIB + 1)}),
        (415, "Content-Type", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}),
        (422, "body", {"json": [job("k")]}),
        (422, "jobs", {"json": {"jobs": []}}),
        (422, "jobs", {"content": many}),
        (422, "jobs.1.payload.x", {"content": b'{"jobs": [{}, {"payload": {"x": NaN}}]}'}),
        (422, "jobs.0.type", {"content": b'{"jobs": [{"type": "a", "type": "b"}]}'}),
    ]
    for status, field, request in cases:
        headers = {"Content-Type": "application/json"} | request.pop("headers", {})
        answer = api.post("/jobs/batch", headers=headers, **request)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (status, field), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    nul = api.post("/jobs/batch", json={"jobs": [job("k\x00"), job("k", order_id="a\x00")]}).json()
    assert [result["errors"][0]["field"] for result in nul["results"]] == [
        "idempotency_key",
        "payload.order_id",
    ]
    payload = {"event_id": "e", "kind": "k", "data": {"text": "o" * MIB}}
    hook = {"type": "webhooks.handle_webhook", "payload": payload, "idempotency_key": "k"}
    large = api.post("/jobs/batch", json={"jobs": [hook]}).json()
    assert (large["results"][0]["status"], large["accepted"]) == (413, 0)
    assert count(running) == count(running, "idempotency_keys") == 0


def test_a_crash_of_the_database_connection_stores_all_of_a_batch_or_nothing(running: Stack) -> None:
    """Batches are sent again until they are accepted, while connections are cut under them."""
    jobs = [job(f"k{number:03}") for number in range(300)]
    done = threading.Event()

    def send() -> httpx.Response:
        def tried() -> httpx.Response | None:
            answer = running.http.post("/jobs/batch", json={"jobs": jobs})
            assert answer.status_code in (202, 503), answer.text
            assert count(running) == count(running, "idempotency_keys")
            assert count(running) in (0, 300)
            return answer if answer.status_code == 202 else None

        try:
            return cast(httpx.Response, eventually(tried, 60, "the batch is accepted"))
        finally:
            done.set()

    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(send)
        until = time.monotonic() + 2
        while not done.is_set() and time.monotonic() < until:
            running.database.execute(CUT)
        answer = sent.result()
    assert answer.json()["accepted"] == 300
    assert len({result["id"] for result in answer.json()["results"]}) == 300
    assert count(running) == 300
    eventually(lambda: count(running, "outbox") == 0, 30, "all are published")
