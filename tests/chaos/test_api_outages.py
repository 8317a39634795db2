"""The API while the broker or the database is away, cut off, stuck, or full."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.proxy import TcpProxy
from tests.support.stack import Stack
from tests.support.waiting import eventually

TYPE = "payments.charge_order"
MakeProxy = Callable[..., TcpProxy]


def submit(stack: Stack, key: str) -> httpx.Response:
    payload = {"order_id": key, "amount_cents": 5, "currency": "EUR"}
    return stack.http.post("/jobs", json={"type": TYPE, "payload": payload, "idempotency_key": key})


def outbox(stack: Stack) -> int:
    return int(stack.database.value("select count(*) from redrive.outbox"))


def orders(stack: Stack) -> list[str]:
    """The order ids in the work queue, in the queue's order, once the outbox is empty."""
    eventually(lambda: outbox(stack) == 0, 30, "the outbox is empty")
    bodies = [json.loads(base64.b64decode(m["payload"])) for m in stack.vhost.get("payments", 10_000)]
    return [body[1]["order_id"] for body in bodies]


def answered(sent: list[Future[httpx.Response]], count: int) -> bool:
    return sum(future.done() for future in sent) >= count


def is_accepted(stack: Stack, key: str) -> bool:
    return submit(stack, key).status_code == 202


def readiness(stack: Stack) -> tuple[int, dict[str, object]]:
    answer = stack.http.get("/readyz")
    return answer.status_code, answer.json()


def test_without_the_broker_jobs_are_accepted_and_published_in_order_once_it_is_there(
    stack: Stack, proxy: MakeProxy
) -> None:
    stack.apply_topology()
    broker = proxy(stack.vhost.amqp_url, refusing=True)
    process = stack.start_api(REDRIVE_AMQP_URL=broker.url)
    status, said = readiness(stack)
    assert (status, said["broker"], said["status"]) == (200, "away", "degraded")
    for number in range(20):
        assert submit(stack, f"k{number:02}").status_code == 202
    assert outbox(stack) == 20
    process.wait_for_log("waiting for RabbitMQ")
    # An outage is nobody's failure: no try is counted.
    burnt = "select count(*) from redrive.outbox where tries > 0 or last_error is not null"
    assert stack.database.value(burnt) == 0
    broker.resume()
    eventually(lambda: readiness(stack)[1]["broker"] == "ok", 20, "the API has found the broker")
    assert orders(stack) == [f"k{number:02}" for number in range(20)]
    assert stack.database.value("select count(*) from redrive.jobs where state <> 'QUEUED'") == 0


def test_cut_off_from_the_broker_again_and_again_nothing_accepted_is_lost(
    stack: Stack, proxy: MakeProxy
) -> None:
    stack.apply_topology()
    broker = proxy(stack.vhost.amqp_url)
    stack.start_api(REDRIVE_AMQP_URL=broker.url)
    with ThreadPoolExecutor(4) as threads:
        sent = [threads.submit(submit, stack, f"k{number:03}") for number in range(200)]
        for done in (40, 80, 120):
            eventually(partial(answered, sent, done), 20, f"{done} are answered")
            broker.cut()
    assert {future.result().status_code for future in sent} == {202}
    # A confirm that was lost with its connection makes a duplicate, which the job's claim removes.
    found = orders(stack)
    assert set(found) == {f"k{number:03}" for number in range(200)}
    assert len(found) < 400


@pytest.mark.parametrize("timeout_s", ["1", "60"])
def test_a_broker_that_is_stuck_delays_nobody_and_loses_nothing(
    stack: Stack, proxy: MakeProxy, timeout_s: str
) -> None:
    stack.apply_topology()
    broker = proxy(stack.vhost.amqp_url)
    stack.start_api(REDRIVE_AMQP_URL=broker.url, REDRIVE_API_PUBLISH_TIMEOUT_S=timeout_s)
    assert submit(stack, "a").status_code == 202
    eventually(lambda: outbox(stack) == 0, 10, "the first is published")
    broker.hold()
    keys = [f"k{number:02}" for number in range(20)]
    with ThreadPoolExecutor(20) as threads:
        sent = [threads.submit(submit, stack, key) for key in keys]
        health = {stack.http.get("/healthz").status_code for _ in range(20)}
    assert {future.result().status_code for future in sent} == {202}
    assert health == {200}
    # Answered while not one byte passes: with 60 s, a request that waited would have run into its 30 s.
    assert outbox(stack) == 20
    broker.resume()
    assert set(orders(stack)) == {"a", *keys}


def test_jobs_accepted_by_a_killed_process_are_published_by_the_next(stack: Stack, proxy: MakeProxy) -> None:
    stack.apply_topology()
    broker = proxy(stack.vhost.amqp_url, refusing=True)
    killed = stack.start_api(REDRIVE_AMQP_URL=broker.url)
    assert submit(stack, "a").status_code == 202
    killed.kill()
    stack.start_api()
    assert orders(stack) == ["a"]


def test_a_process_without_the_broker_hands_over_at_once_to_one_that_has_it(
    stack: Stack, proxy: MakeProxy
) -> None:
    stack.apply_topology()
    stack.settings["REDRIVE_API_RELAY_POLL_S"] = "60"  # so that only being told can be the reason
    stack.start_api()
    eventually(lambda: readiness(stack)[1]["broker"] == "ok", 10, "one process has the broker")
    broker = proxy(stack.vhost.amqp_url, refusing=True)
    stack.start_api(REDRIVE_AMQP_URL=broker.url)
    assert submit(stack, "a").status_code == 202
    assert orders(stack) == ["a"]


def test_unroutable_jobs_stay_with_their_reason_and_go_out_once_the_queue_is_there(stack: Stack) -> None:
    stack.start_api()
    accepted = submit(stack, "a")
    assert accepted.status_code == 202
    eventually(
        lambda: stack.database.value("select last_error from redrive.outbox"), 10, "the refusal is recorded"
    )
    shown = stack.job(accepted.json()["id"])
    assert shown["state"] == "PENDING"
    assert shown["outbox"]["tries"] >= 1
    assert "payments" in shown["outbox"]["last_error"]
    (payments,) = [
        queue for queue in stack.http.get("/queues").json()["queues"] if queue["name"] == "payments"
    ]
    assert payments["outbox"]["refused"] == 1
    assert "payments" in payments["outbox"]["last_error"]
    assert payments["jobs"] == {"PENDING": 1}
    stack.apply_topology()
    assert orders(stack) == ["a"]
    sent = stack.until(shown["id"], "QUEUED")
    assert sent["outbox"] is None


def test_jobs_that_the_broker_refuses_us_to_publish_stay_with_its_words(stack: Stack) -> None:
    stack.apply_topology()
    user = urlsplit(stack.vhost.amqp_url).username
    rights = f"/api/permissions/{stack.vhost.vhost}/{user}"
    read_only = {"configure": ".*", "write": "^$", "read": ".*"}
    stack.vhost.management.put(rights, json=read_only).raise_for_status()
    stack.start_api()
    for key in ("a", "b"):
        assert submit(stack, key).status_code == 202
    said = "select count(*) from redrive.outbox where last_error like '%ACCESS_REFUSED%'"
    eventually(lambda: stack.database.value(said) == 2, 15, "both refusals are recorded")
    stack.vhost.management.put(rights, json=read_only | {"write": ".*"}).raise_for_status()
    assert sorted(orders(stack)) == ["a", "b"]


SMALL = """
from pydantic import BaseModel
from topology.spec import JobType, Topology, WorkQueue

class Payload(BaseModel):
    n: int

QUEUES = (WorkQueue("small", watermark=5), WorkQueue("other"))
TOPOLOGY = Topology(QUEUES, (JobType("small.job", "small", Payload), JobType("other.job", "other", Payload)))
"""


def test_a_queue_above_its_watermark_is_paused_while_others_go_on(stack: Stack) -> None:
    (stack.processes.directory / "small_topology.py").write_text(SMALL)
    stack.settings["REDRIVE_TOPOLOGY"] = "small_topology:TOPOLOGY"
    stack.apply_topology()
    stack.start_api()
    for number in range(12):
        stack.submit("small.job", {"n": number}, f"s{number}")
    eventually(lambda: stack.depth("small") == 5, 10, "the queue is filled to its watermark")
    stack.submit("other.job", {"n": 0}, "o")
    eventually(lambda: stack.depth("other") == 1, 10, "the other queue takes its job")
    eventually(lambda: readiness(stack)[1]["paused_queues"] == ["small"], 10, "readiness names the queue")
    shown = {queue["name"]: queue for queue in stack.http.get("/queues").json()["queues"]}
    assert (shown["small"]["paused"], shown["other"]["paused"]) == (True, False)
    assert (shown["small"]["paused_by"], shown["other"]["paused_by"]) == ("watermark", None)
    assert shown["small"]["outbox"]["messages"] == 7
    assert stack.depth("small") == 5
    stack.vhost.get("small", 3)
    eventually(lambda: outbox(stack) == 4, 10, "there was room for three more")
    assert stack.depth("small") == 5
    stack.vhost.get("small", 5)
    eventually(lambda: outbox(stack) == 0, 10, "all are published")
    eventually(lambda: readiness(stack)[1]["paused_queues"] == [], 10, "no queue is paused")


def test_without_the_database_it_is_alive_says_what_it_waits_for_and_serves_once_it_is_there(
    stack: Stack, proxy: MakeProxy
) -> None:
    stack.apply_topology()
    database = proxy(stack.database.url, refusing=True)
    process = stack.start_api(ready=False, REDRIVE_DATABASE_URL=database.url)
    process.wait_for_log("Application startup complete")
    process.wait_for_log(f"waiting for the database at 127.0.0.1:{database.port}")
    assert stack.http.get("/healthz").status_code == 200
    status, said = readiness(stack)
    assert (status, said["database"]) == (503, "away")
    refused = submit(stack, "a")
    assert refused.status_code == 503
    assert refused.headers["retry-after"]
    assert refused.headers["content-type"] == "application/problem+json"
    database.resume()
    eventually(partial(is_accepted, stack, "a"), 20, "jobs are accepted")
    assert orders(stack) == ["a"]


@pytest.mark.parametrize("outage", ["refuse", "hold"])
def test_a_database_lost_on_the_way_is_a_503_and_everything_recovers(
    stack: Stack, proxy: MakeProxy, outage: str
) -> None:
    stack.apply_topology()
    database = proxy(stack.database.url)
    stack.start_api(REDRIVE_DATABASE_URL=database.url, REDRIVE_API_DATABASE_TIMEOUT_S="1")
    assert submit(stack, "a").status_code == 202
    getattr(database, outage)()
    answers = [submit(stack, "b"), stack.http.get("/jobs/x")]
    assert [answer.status_code for answer in answers] == [503] * 2
    # Readiness may be half a second old.
    eventually(lambda: readiness(stack)[0] == 503, 10, "it is not ready")
    assert stack.http.get("/healthz").status_code == 200
    database.resume()
    eventually(partial(is_accepted, stack, "b"), 20, "jobs are accepted")
    assert submit(stack, "b").headers["idempotent-replayed"] == "true"
    eventually(lambda: readiness(stack)[0] == 200, 10, "it is ready")
    assert sorted(set(orders(stack))) == ["a", "b"]


def test_connections_ended_by_the_server_cost_at_most_a_503(stack: Stack) -> None:
    stack.apply_topology()
    stack.start_api()
    for number in range(5):
        assert stack.database.cut_connections() > 0
        eventually(partial(is_accepted, stack, f"k{number}"), 10, "accepted")
    assert set(orders(stack)) == {f"k{number}" for number in range(5)}


@pytest.mark.parametrize("away", ["REDRIVE_AMQP_URL", "REDRIVE_DATABASE_URL"])
def test_it_stops_at_once_while_a_server_is_away(stack: Stack, proxy: MakeProxy, away: str) -> None:
    server = proxy(stack.settings[away], refusing=True)
    process = stack.start_api(ready=False, **{away: server.url})
    process.wait_for_log("Application startup complete")
    process.wait_for_log("waiting for")
    process.terminate(10)
    assert "Application shutdown complete" in process.log
    assert "Traceback" not in process.log


def test_a_changed_password_is_said_and_no_reason_to_stop_for_good(stack: Stack) -> None:
    stack.apply_topology()
    role = f"redrive_{stack.database.name[-12:]}"
    stack.database.execute(f"create role {role} login superuser password 'first'")
    try:
        url = urlsplit(stack.database.url)
        own = url._replace(netloc=f"{role}:first@{url.hostname}:{url.port}").geturl()
        stack.start_api(REDRIVE_DATABASE_URL=own)
        stack.database.execute(f"alter role {role} password 'second'")
        stack.database.cut_connections()
        eventually(
            lambda: readiness(stack)[1]["database"] == "refused: InvalidPasswordError", 10, "it is said"
        )
        assert readiness(stack)[0] == 503
        stack.database.execute(f"alter role {role} password 'first'")
        eventually(partial(is_accepted, stack, "a"), 10, "jobs are accepted")
        assert orders(stack) == ["a"]
    finally:
        stack.database.cut_connections()
        stack.database.execute(f"drop role {role}")
