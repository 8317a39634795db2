"""`GET /queues` of a real API process beside a real worker, broker and Postgres."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support import background
from tests.support.policies import somebodys
from tests.support.proxy import TcpProxy
from tests.support.stack import Stack
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.catalogue import TOPOLOGY
from topology.connection import connect
from topology.migrate.gate import shut

TYPE = "payments.charge_order"
CHARGE = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}


def queue(stack: Stack, name: str = "payments") -> dict[str, Any]:
    answer = stack.http.get(f"/queues/{name}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["broker"] == "ok"
    shown: dict[str, Any] = answer.json()["queue"]
    return shown


def test_a_queue_tells_what_waits_where_for_how_long_and_how_fast(running: Stack) -> None:
    for number in range(3):
        running.submit(TYPE, CHARGE, f"k{number}")
    later = {"type": TYPE, "payload": CHARGE, "idempotency_key": "later", "delay_s": 3_600}
    assert running.http.post("/jobs", json=later).status_code == 202
    running.publish("payments.retry.512s", b"retry")
    running.publish("payments.dlq", b"dead")
    eventually(lambda: queue(running)["jobs"] == {"QUEUED": 3, "PENDING": 1}, 30, "three are published")
    running.database.execute(
        "update redrive.jobs set queued_at = queued_at - interval '90 s'"
        " where id = (select min(id) from redrive.jobs where state = 'QUEUED')"
    )
    with running.vhost.channel() as channel:
        channel.basic_get("payments")  # held, unacknowledged

        def counted() -> dict[str, Any]:
            shown = queue(running)
            held = {
                name: shown[name] for name in ("depth", "ready", "unacknowledged", "dlq_depth", "retrying")
            }
            assert held == {"depth": 3, "ready": 2, "unacknowledged": 1, "dlq_depth": 1, "retrying": 1}
            return shown

        shown = eventually(counted, 30, "the management API counts")
        steps = {step["name"]: step["messages"] for step in shown["steps"]}
        assert (len(steps), steps["payments.retry.512s"], sum(steps.values())) == (12, 1, 1)
        assert 90 <= shown["oldest_seconds"] < 600
        assert shown["outbox"] == {
            "messages": 0, "delayed": 1, "refused": 0, "oldest_seconds": 0.0, "last_error": None,
        }  # fmt: skip
        assert shown["recent"] == {"seconds": 300.0, "accepted": 4, "states": {"PENDING": 1, "QUEUED": 3}}
        assert (shown["declared"], shown["paused"], shown["undecided"]) == (True, False, 0)
    listed = running.http.get("/queues").json()
    assert [each["name"] for each in listed["queues"]] == [each.name for each in TOPOLOGY.queues]
    assert listed["unrouted"] == 0
    emails = queue(running, "emails")
    assert (emails["oldest_seconds"], emails["recent"]["accepted"], emails["depth"]) == (None, 0, 0)


def test_rates_are_the_broker_s_while_messages_flow(running: Stack) -> None:
    with running.vhost.channel() as channel:
        channel.confirm_delivery()

        def flowing() -> bool:
            channel.basic_publish("", "inventory", b"x")
            method, _, _ = channel.basic_get("inventory")
            channel.basic_nack(method.delivery_tag)
            method, _, _ = channel.basic_get("inventory")
            channel.basic_ack(method.delivery_tag)
            rates = queue(running, "inventory")["rates"]
            assert all((rate or 0) > 0 for rate in rates.values()), rates
            return len(rates) == 4

        running.publish("inventory", b"dies")
        method, _, _ = channel.basic_get("inventory")
        channel.basic_reject(method.delivery_tag, requeue=False)
        eventually(flowing, 40, "the broker has measured")

    def counted() -> dict[str, Any]:
        dead = running.vhost.queue("inventory.dlq") or {}
        return dead if dead.get("messages") == 1 else {}

    # Why there is no rate of what dies (3.10.8, 4.3).
    dead = eventually(counted, 20, "the letter is counted")
    assert dead.get("message_stats", {}).get("publish", 0) == 0


def test_undecided_letters_and_ended_jobs_are_counted_in_postgres(running: Stack) -> None:
    running.database.execute(
        "insert into redrive.jobs (id, type, queue, state, created_at, finished_at)"
        " select 'j' || n, 't', 'reports', case when n % 4 = 0 then 'DEAD' else 'SUCCEEDED' end,"
        " now() - n * interval '1 minute', now() from generate_series(0, 7) n"
    )
    shown = queue(running, "reports")
    assert shown["recent"] == {"seconds": 300.0, "accepted": 5, "states": {"DEAD": 2, "SUCCEEDED": 3}}
    assert shown["jobs"] == {"DEAD": 2}
    running.database.execute(
        "insert into redrive.jobs (id, type, queue, state, created_at)"
        " select 'm' || n, 't', 'reports', 'SUCCEEDED', now() - interval '30 s'"
        " from generate_series(1, 6000) n"
    )
    recent = queue(running, "reports")["recent"]
    # The last 5,000 alone are looked at: those of half a minute.
    assert recent["accepted"] == 5_000
    assert 29 < recent["seconds"] < 300


def test_an_unknown_queue_is_no_page(running: Stack) -> None:
    for name in ("nope", "payments.dlq", "%00", "x" * 5_000, "a%2Fb"):
        answer = running.http.get(f"/queues/{name}")
        assert answer.status_code == 404, name
        assert len(answer.content) < 2_000
    known = running.http.get("/queues/nope").json()
    assert known["type"] == "urn:redrive:problem:unknown-queue"
    assert "there are: payments, " in known["detail"]


def test_a_queue_that_is_gone_is_not_declared(running: Stack) -> None:
    with running.vhost.channel() as channel:
        channel.queue_delete("emails.retry.8s")
    try:
        eventually(lambda: queue(running, "emails")["declared"] is False, 20, "it is missed")
        assert queue(running)["declared"] is True
    finally:
        running.apply_topology()


def test_a_queue_that_is_migrated_says_why_nothing_is_published_to_it(running: Stack) -> None:
    address = AmqpAddress.parse(running.vhost.amqp_url)
    migration = background.run(connect(address, "test-migration"))
    try:
        background.run(shut(migration, "webhooks"))
        event = {"event_id": "e", "kind": "k"}
        job = running.submit("webhooks.handle_webhook", event, "k")
        # The management API shows the gate up to 5 s late.
        eventually(lambda: queue(running, "webhooks")["paused_by"] == "migration", 30, "it says so")
        shown = queue(running, "webhooks")
        assert (shown["paused"], shown["outbox"]["messages"], shown["depth"]) == (True, 1, 0)
        assert queue(running)["paused"] is False
    finally:
        background.run(migration.close())
    running.until(job, "QUEUED")
    eventually(lambda: queue(running, "webhooks")["paused"] is False, 20, "it goes on")


def test_without_the_management_api_postgres_is_told_and_readers_share_one_question(
    stack: Stack, proxy: Callable[..., TcpProxy]
) -> None:
    management = proxy(stack.vhost.management_url)
    stack.start_api(REDRIVE_MANAGEMENT_URL=management.url)
    stack.submit(TYPE, CHARGE, "k")
    management.hold()
    eventually(lambda: stack.http.get("/queues").json()["broker"] != "ok", 20, "it does not answer")
    asked = management.accepted
    with ThreadPoolExecutor(30) as threads:
        begun = datetime.now(UTC)
        reading = [threads.submit(stack.http.get, "/queues") for _ in range(30)]
        # Meanwhile the event loop answers others.
        assert stack.http.get("/healthz").status_code == 200
        assert stack.http.get("/jobs").status_code == 200
        answers = [each.result() for each in reading]
    assert {answer.status_code for answer in answers} == {200}
    for shown in (answers[0].json(), stack.http.get("/queues").json()):
        assert shown["broker"].startswith("the management API gave no answer")
        payments = shown["queues"][0]
        assert (payments["depth"], payments["steps"], payments["rates"], shown["unrouted"]) == (None,) * 4
        assert payments["recent"]["accepted"] == 1
    # One at a time, 2 s each: the readers', and what the process asks by itself.
    assert management.accepted - asked <= 2 + (datetime.now(UTC) - begun) / timedelta(seconds=2)
    management.resume()
    eventually(lambda: stack.http.get("/queues").json()["broker"] == "ok", 20, "it is asked again")


def test_a_policy_that_makes_a_queue_lose_messages_degrades_readyz_until_it_is_gone(running: Stack) -> None:
    def troubles() -> dict[str, str]:
        answer = running.http.get("/readyz")
        assert answer.status_code == 200
        degraded = answer.json()["degraded"]
        return {each["name"]: each["trouble"] for each in degraded if "policy" in each["trouble"]}

    with somebodys(running.vhost, r"^(payments\.dlq|emails\.retry\.1s)$", expires=3_600_000):
        eventually(lambda: len(troubles()) == 2, 30, "it is told of")
        why = (
            "by policy 'theirs' its expires is 3600000: the broker deletes the queue, and the messages in it"
        )
        assert all(trouble.startswith(why) for trouble in troubles().values())
        assert sorted(troubles()) == ["emails.retry.1s", "payments.dlq"]
    eventually(lambda: troubles() == {}, 30, "it is well again")
