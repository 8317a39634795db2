"""An API process that is told to stop answers what it was asked, ends what is endless, and hands over."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support import background
from tests.support.databases import Database
from tests.support.processes import Process
from tests.support.proxy import TcpProxy
from tests.support.stack import Stack
from tests.support.waiting import eventually

MakeProxy = Callable[..., TcpProxy]
STOPS_S = 30.0


def job(key: str) -> dict[str, Any]:
    payload = {"order_id": key, "amount_cents": 5, "currency": "EUR"}
    return {"type": "payments.charge_order", "payload": payload, "idempotency_key": key}


def outbox(stack: Stack) -> int:
    return int(stack.database.value("select count(*) from redrive.outbox"))


def message_ids(stack: Stack) -> list[str]:
    return [message["properties"]["message_id"] for message in stack.vhost.get("payments", 10_000)]


@contextmanager
def held(database: Database, table: str) -> Iterator[None]:
    """Whoever writes to the table waits."""
    connection = background.run(asyncpg.connect(database.url, timeout=10))
    try:
        background.run(connection.execute(f"begin; lock table {table} in share mode"))
        yield
    finally:
        background.run(connection.close())


def stops(process: Process) -> None:
    """By the signal, as uvicorn does once all is done: no traceback, nothing that is cut off."""
    assert process.wait(STOPS_S) in (0, -15)
    assert "Application shutdown complete" in process.log
    assert "Traceback" not in process.log


def test_requests_streams_and_waits_in_flight_get_whole_answers(stack: Stack) -> None:
    stack.apply_topology()
    process = stack.start_api()
    first = stack.http.post("/jobs", json=job("first")).json()["id"]
    events = threading.Event()

    def follow() -> str:
        with stack.http.stream("GET", f"/jobs/{first}/events") as answer:
            assert answer.status_code == 200
            lines = []
            for line in answer.iter_lines():  # raises when it breaks off before its end
                lines.append(line)
                events.set()
            return "\n".join(lines)

    with ThreadPoolExecutor(20) as threads:
        stream = threads.submit(follow)
        wait = threads.submit(stack.http.get, f"/jobs/{first}", params={"wait": 60})
        assert events.wait(20)
        with held(stack.database, "redrive.jobs"):
            sent = [threads.submit(stack.http.post, "/jobs", json=job(f"k{n}")) for n in range(8)]
            waiting = "select count(*) from pg_locks where not granted"
            eventually(lambda: stack.database.value(waiting) > 0, 20, "submissions wait for the database")
            process.send(signal.SIGTERM)
            eventually(lambda: "Shutting down" in process.log, 20, "it was told")
        assert [each.result().status_code for each in sent] == [202] * 8
        assert wait.result().json()["state"] in ("PENDING", "QUEUED")
        assert "event: job" in stream.result()
    stops(process)
    with pytest.raises(httpx.ConnectError):
        stack.http.get("/healthz")
    accepted = [first, *(each.result().json()["id"] for each in sent)]
    # What it had no time to publish, the next process does.
    stack.start_api()
    eventually(lambda: outbox(stack) == 0, 30, "all are published")
    assert Counter(message_ids(stack)) == Counter(accepted)


def test_of_two_processes_one_is_stopped_under_load_and_no_message_is_sent_twice(stack: Stack) -> None:
    stack.apply_topology()
    stopped = stack.start_api()
    others = stack.http
    stack.api = None
    stack.start_api()
    accepted: list[str] = []
    lost = threading.Event()

    def submit(caller: int, client: httpx.Client) -> None:
        for number in range(60):
            try:
                answer = client.post("/jobs", json=job(f"{caller}-{number}"))
            except httpx.TransportError:  # its socket is closed: nobody answered, nothing was promised
                lost.set()
                return
            assert answer.status_code == 202
            accepted.append(answer.json()["id"])

    with ThreadPoolExecutor(8) as threads:
        sending = [
            threads.submit(submit, caller, client)
            for caller, client in enumerate([others] * 4 + [stack.http] * 4)
        ]
        eventually(lambda: len(accepted) > 40, 30, "they are at work")
        stopped.send(signal.SIGTERM)
        for each in sending:
            each.result()
    others.close()
    stops(stopped)
    eventually(lambda: outbox(stack) == 0, 30, "all are published")
    found = message_ids(stack)
    assert set(accepted) <= set(found)
    # A request of which no answer came may have been accepted; twice is none.
    assert len(found) == len(set(found)) == stack.database.value("select count(*) from redrive.jobs")


def test_rows_that_a_stopped_process_could_not_confirm_go_to_another_at_once(
    stack: Stack, proxy: MakeProxy
) -> None:
    stack.apply_topology()
    stack.settings["REDRIVE_API_RELAY_POLL_S"] = "60"  # so that only being told can be the reason
    stack.start_api()
    broker = proxy(stack.vhost.amqp_url)
    stopped = stack.start_api(REDRIVE_AMQP_URL=broker.url, REDRIVE_API_PUBLISH_TIMEOUT_S="2")

    def connected() -> bool:
        return bool(stack.http.get("/readyz").json()["broker"] == "ok")

    eventually(connected, 20, "it has the broker")
    broker.hold_answers()
    accepted = stack.http.post("/jobs", json=job("a")).json()["id"]
    # It holds the row, and waits for the broker.
    free = "select count(*) from (select id from redrive.outbox for update skip locked) as free"
    eventually(lambda: stack.database.value(free) == 0, 20, "the stuck process holds the row")
    assert outbox(stack) == 1
    stopped.send(signal.SIGTERM)
    stops(stopped)
    eventually(lambda: outbox(stack) == 0, 20, "the other one has published it")
    assert set(message_ids(stack)) == {accepted}
