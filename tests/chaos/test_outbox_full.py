"""A full outbox refuses jobs, and readiness tells it from what only delays them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import httpx

from tests.support.proxy import TcpProxy
from tests.support.stack import Stack
from tests.support.waiting import eventually

MakeProxy = Callable[..., TcpProxy]
LIMIT = 5


def job(key: str) -> dict[str, Any]:
    payload = {"order_id": key, "amount_cents": 5, "currency": "EUR"}
    return {"type": "payments.charge_order", "payload": payload, "idempotency_key": key}


def submit(stack: Stack, key: str) -> httpx.Response:
    return stack.http.post("/jobs", json=job(key))


def batch(stack: Stack, *keys: str) -> httpx.Response:
    return stack.http.post("/jobs/batch", json={"jobs": [job(key) for key in keys]})


def readiness(stack: Stack) -> tuple[int, dict[str, Any]]:
    answer = stack.http.get("/readyz")
    return answer.status_code, answer.json()


def troubles(stack: Stack) -> dict[str, str]:
    status, said = readiness(stack)
    assert (status, said["database"]) == (200, "ok")
    assert said["status"] == ("degraded" if said["degraded"] else "ready")
    return {each["name"]: each["trouble"] for each in said["degraded"]}


def rows(stack: Stack, table: str) -> int:
    return int(stack.database.value(f"select count(*) from redrive.{table}"))


def is_accepted(stack: Stack, key: str) -> bool:
    return submit(stack, key).status_code == 202


def assert_full(answer: httpx.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:redrive:problem:outbox-full"
    assert int(answer.headers["retry-after"]) > 0


def test_a_full_outbox_refuses_new_jobs_in_every_process_and_takes_them_again_once_there_is_room(
    stack: Stack, proxy: MakeProxy
) -> None:
    stack.apply_topology()
    broker = proxy(stack.vhost.amqp_url, refusing=True)
    stack.settings |= {"REDRIVE_AMQP_URL": broker.url, "REDRIVE_API_OUTBOX_LIMIT": str(LIMIT)}
    stack.start_api(REDRIVE_API_DOCS="true")
    paths = stack.http.get("/openapi.json").json()["paths"]
    for path in ("/jobs", "/jobs/batch"):
        assert "Retry-After" in paths[path]["post"]["responses"]["503"]["headers"]
    assert batch(stack, "b0").status_code == 202
    for number in range(1, LIMIT):
        assert submit(stack, f"k{number}").status_code == 202

    def refuses_all_that_is_new() -> None:
        assert_full(submit(stack, "new"))
        assert_full(batch(stack, "b0", "new"))
        assert [rows(stack, table) for table in ("jobs", "outbox", "idempotency_keys")] == [LIMIT] * 3
        # What was accepted stays accepted.
        assert submit(stack, "k1").headers["idempotent-replayed"] == "true"
        assert batch(stack, "b0").json()["replayed"] == 1
        eventually(lambda: readiness(stack)[0] == 503, 30, "it is not ready")
        _, said = readiness(stack)
        assert said["status"] == "not ready"
        assert said["outbox"] == {"messages": LIMIT, "limit": LIMIT, "full": True}
        assert stack.http.get("/healthz").status_code == 200

    refuses_all_that_is_new()
    caller = stack.http.headers["authorization"]
    stack.start_api(ready=False)
    stack.http.headers["authorization"] = caller
    eventually(lambda: readiness(stack)[1]["database"] == "ok", 30, "it answers", ignoring=(httpx.HTTPError,))
    refuses_all_that_is_new()
    broker.resume()
    eventually(partial(is_accepted, stack, "new"), 30, "jobs are accepted")
    eventually(lambda: readiness(stack)[0] == 200, 30, "it is ready")
    eventually(lambda: rows(stack, "outbox") == 0, 30, "all are published")
    assert stack.depth("payments") == LIMIT + 1


def test_trouble_of_broker_and_topology_is_named_and_keeps_no_job_out(stack: Stack, proxy: MakeProxy) -> None:
    management = proxy(stack.vhost.management_url)
    stack.settings["REDRIVE_MANAGEMENT_URL"] = management.url
    stack.start_api()
    eventually(lambda: "payments" in troubles(stack), 30, "missing queues are named")
    named = troubles(stack)
    assert named["payments"] == "the queue is missing"
    assert named["topology"].endswith(" more are missing")
    assert len(named) < 30
    stack.apply_topology()
    with stack.vhost.channel() as channel:
        channel.queue_delete("payments.dlq")
    # Before anything has died on these ways, and with no dead letter that could tell of them.
    for lost in ("exchanges/{}/reports.dlx", "bindings/{}/e/emails.dlx/q/emails.dlq/emails"):
        stack.vhost.management.delete(f"/api/{lost.format(stack.vhost.vhost)}").raise_for_status()
    named = {
        "payments.dlq": "the queue is missing",
        "reports.dlx": "the exchange is missing",
        "emails.dlx → emails.dlq (emails)": "the binding is missing",
    }
    eventually(lambda: troubles(stack) == named, 30, "each is named, and no more")
    management.hold()
    eventually(lambda: "management API" in troubles(stack), 30, "it says that it does not know")
    # Nothing waits for the one that is stuck.
    assert stack.http.get("/readyz", timeout=httpx.Timeout(1.9)).status_code == 200
    assert submit(stack, "k").status_code == 202


def test_the_database_alone_makes_it_not_ready(stack: Stack, proxy: MakeProxy) -> None:
    stack.apply_topology()
    database, broker = proxy(stack.database.url), proxy(stack.vhost.amqp_url)
    stack.start_api(REDRIVE_DATABASE_URL=database.url, REDRIVE_AMQP_URL=broker.url)
    eventually(lambda: troubles(stack) == {}, 30, "all is well")
    broker.refuse()
    eventually(lambda: "broker" in troubles(stack), 30, "the broker is named")
    database.refuse()
    eventually(lambda: readiness(stack)[0] == 503, 30, "it is not ready")
    database.resume()
    eventually(lambda: readiness(stack)[0] == 200, 30, "it is ready")
    broker.resume()
    eventually(lambda: troubles(stack) == {}, 30, "all is well")
