"""What takes long leaves room for submissions: over a real API process, RabbitMQ and Postgres."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import httpx
import pytest

from tests.support import letter_rows
from tests.support.proxy import TcpProxy
from tests.support.stack import Stack
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually

# More than connections of the pool.
MANY = 12
CHARGE = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}


@pytest.fixture
def broker(vhost: Vhost) -> Iterator[TcpProxy]:
    with TcpProxy(vhost.amqp_url) as proxy:
        yield proxy


@pytest.fixture
def running(stack: Stack, broker: TcpProxy) -> Stack:
    stack.apply_topology()
    letter_rows.prepare(stack.database)
    letter_rows.store(stack.database, MANY)
    stack.start_api(REDRIVE_AMQP_URL=broker.url, REDRIVE_API_PUBLISH_TIMEOUT_S="1")
    return stack


def goes_on_beside(running: Stack, asked: Any) -> None:
    """Two seconds long, jobs are accepted and the process is ready."""
    for number in range(8):
        assert not wait(asked, 0.25, FIRST_COMPLETED).done, "it does not take long"
        running.submit("payments.charge_order", CHARGE, f"k{number}")
        assert running.http.get("/readyz").json()["database"] == "ok"


def test_replays_that_ask_a_broker_without_an_answer_keep_no_submission_waiting(
    running: Stack, broker: TcpProxy
) -> None:
    broker.hold()
    before = broker.accepted
    bodies = [{"letter_ids": [number + 1], "dry_run": True} for number in range(MANY)]
    url, headers = f"{running.http.base_url}/replays", dict(running.http.headers)
    with ThreadPoolExecutor(MANY) as threads:
        asked = [threads.submit(httpx.post, url, json=body, headers=headers, timeout=60) for body in bodies]
        try:
            eventually(lambda: broker.accepted > before, 30, "the broker is asked")
            goes_on_beside(running, asked)
        finally:
            broker.resume()
        answers = [each.result(60) for each in asked]
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 503)


def test_what_a_frozen_relay_holds_is_published_by_another(running: Stack, broker: TcpProxy) -> None:
    (frozen,) = (each for each in running.processes.started if each.name == "api")
    taken = "select not exists (select from redrive.outbox for update skip locked) from redrive.outbox"
    eventually(lambda: running.http.get("/readyz").json()["broker"] == "ok", 30, "the relay is connected")
    broker.hold()
    try:
        running.submit("payments.charge_order", CHARGE, "k")
        eventually(lambda: running.database.value(taken), 30, "the relay has taken the message")
        os.kill(frozen.pid, signal.SIGSTOP)
        assert running.database.value(taken), "it was frozen with the message in its hand"
        running.start_api()
        eventually(lambda: running.depth("payments") == 1, 60, "another relay has published it")
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
        broker.resume()
    # Once more at most: its claim takes the second one for a duplicate.
    eventually(lambda: frozen.log.count("waiting for the outbox's") >= 1, 30, "the frozen one has noticed")
