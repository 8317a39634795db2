"""Jobs cancelled and retried over HTTP, with the real dead-letter consumer beside the API."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.databases import Database
from tests.support.event_stream import Events
from tests.support.processes import Processes
from tests.support.shared import Places, Shared
from tests.support.stack import Stack
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import connection

TYPE = "payments.charge_order"
PAYLOAD = {"order_id": "o-1", "amount_cents": 1999, "currency": "EUR"}


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Stack]]:
    def make(vhost: Vhost, database: Database, processes: Processes) -> Stack:
        stack = Stack(vhost, database, processes)
        stack.apply_topology()
        stack.start_api()
        stack.start_consumer()
        return stack

    with places.shared(make) as shared:
        yield shared


def ask(stack: Stack, job: str, what: str, note: str = "", key: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return stack.http.post(f"/jobs/{job}/{what}", json={"note": note}, headers=headers)


def new_key(stack: Stack, name: str, *scopes: str) -> str:
    chosen = [part for scope in scopes for part in ("--scope", scope)]
    made = stack.command("api.keys_cli:main", "create", name, "--json", *chosen)
    assert made.returncode == 0, made.stderr
    return str(json.loads(made.stdout)["key"])


def test_a_waiting_job_is_cancelled_once_and_who_did_it_is_on_record(running: Stack) -> None:
    job = running.submit(TYPE, PAYLOAD, "k1")
    running.until(job, "QUEUED")
    answer = ask(running, job, "cancel", "a typo")
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["state"], shown["reason"], shown["cancel_requested"]) == ("CANCELLED", "cancelled", True)
    assert [step["state"] for step in shown["history"]] == ["PENDING", "QUEUED", "CANCELLED"]
    (action,) = shown["actions"]
    assert action["by"].startswith("test-")
    assert {name: action[name] for name in ("action", "note", "came_from", "state", "generation")} == {
        "action": "cancel", "note": "a typo", "came_from": "127.0.0.1", "state": "QUEUED", "generation": 1,
    }  # fmt: skip
    again = ask(running, job, "cancel", "twice")
    assert (again.status_code, again.json()["state"]) == (200, "CANCELLED")
    assert len(again.json()["actions"]) == 1
    assert running.http.get(f"/jobs/{job}/result").status_code == 409


def test_a_job_in_the_outbox_is_cancelled_and_never_published(running: Stack) -> None:
    running.database.execute(
        "with job as (insert into redrive.jobs (id, type, queue) values ('j', $1, 'payments') returning id)"
        " insert into redrive.outbox (job_id, queue, properties, body, token, not_before)"
        " select id, 'payments', '', '', 't', now() + interval '1 hour' from job",
        TYPE,
    )
    assert ask(running, "j", "cancel").json()["state"] == "CANCELLED"
    assert running.database.value("select count(*) from redrive.outbox") == 0


def test_what_is_not_waiting_is_asked_to_stop_or_left_as_it_ended(running: Stack) -> None:
    job = running.submit(TYPE, PAYLOAD, "k1")
    running.until(job, "QUEUED")
    claimed = "state = 'RUNNING', claim = gen_random_uuid(), lease_until = now() + interval '1 hour'"
    running.database.execute(f"update redrive.jobs set {claimed}")
    for _ in range(2):
        answer = ask(running, job, "cancel")
        assert (answer.status_code, answer.json()["state"]) == (202, "RUNNING")
        assert answer.json()["cancel_requested"] is True
        assert len(answer.json()["actions"]) == 1
    for state in ("SUCCEEDED", "DEAD"):
        running.database.execute(f"update redrive.jobs set state = '{state}', claim = null")
        refused = ask(running, job, "cancel")
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:redrive:problem:not-allowed")
        assert running.job(job)["state"] == state
    assert ask(running, "nope", "cancel").status_code == ask(running, "nope", "retry").status_code == 404
    long = running.http.post(f"/jobs/{job}/cancel", json={"note": "x" * 2_001})
    assert (long.status_code, long.json()["errors"][0]["field"]) == (422, "note")


def test_a_key_cancels_its_own_jobs_and_one_that_operates_cancels_any(running: Stack) -> None:
    mine, reads = new_key(running, "mine", "submit"), new_key(running, "reads", "read")
    operates = new_key(running, "operates", "operate")
    body = {"type": TYPE, "payload": PAYLOAD, "idempotency_key": "k"}
    theirs = running.http.post("/jobs", json=body).json()["id"]
    own = running.http.post("/jobs", json=body, headers={"Authorization": f"Bearer {mine}"}).json()["id"]
    assert ask(running, theirs, "cancel", key=mine).status_code == 403
    assert ask(running, own, "cancel", key=reads).status_code == 403
    assert ask(running, own, "retry", key=mine).status_code == 403
    assert ask(running, own, "cancel", key=mine).json()["state"] == "CANCELLED"
    assert ask(running, theirs, "cancel", key=operates).json()["state"] == "CANCELLED"


def dead(stack: Stack) -> str:
    """A job whose message was dead-lettered, with its letter stored."""
    job = stack.submit(TYPE, PAYLOAD, "k1")
    stack.until(job, "QUEUED")
    reject(stack)

    def stored() -> bool:
        shown = stack.job(job)
        assert (shown["state"], shown["letter_id"] is None) == ("DEAD", False), shown
        return True

    eventually(stored, 30, "its letter is stored")
    return job


def reject(stack: Stack) -> None:
    with connection(AmqpAddress.parse(stack.vhost.amqp_url), "test") as opened:
        channel = opened.channel()

        def got() -> Any:
            method, _, _ = channel.basic_get("payments")
            assert method is not None
            return method

        channel.basic_reject(eventually(got, 20, "a message").delivery_tag, requeue=False)


def test_a_dead_job_is_run_again_as_a_replay_and_not_twice_at_once(running: Stack) -> None:
    job = dead(running)
    answer = ask(running, job, "retry", "the provider is back")
    assert answer.status_code == 202, answer.text
    plan = answer.json()
    assert answer.headers["location"] == f"/replays/{plan['id']}"
    assert (plan["letters"], plan["note"]) == (1, "the provider is back")
    second = ask(running, job, "retry")
    assert second.status_code == 409, second.text
    eventually(lambda: running.job(job)["generation"] == 2, 30, "the replay has begun a generation")
    shown = running.job(job)
    (action,) = shown["actions"]
    assert (action["action"], action["replay_id"], action["note"]) == ("retry", plan["id"], plan["note"])
    assert (action["state"], action["generation"], action["by"]) == ("DEAD", 1, plan["requested_by"])
    assert shown["state"] == "QUEUED"
    assert ask(running, job, "retry").status_code == 409
    # A cancelled generation is over, and a key that was used still names its job.
    assert ask(running, job, "cancel").json()["state"] == "CANCELLED"
    assert running.submit(TYPE, PAYLOAD, "k1") == job


def test_a_dead_job_that_is_being_replayed_has_not_ended(running: Stack) -> None:
    job = dead(running)
    letter = running.job(job)["letter_id"]

    def letter_is(state: str) -> None:
        running.database.execute("update redrive.dead_letters set state = $2 where id = $1", letter, state)

    letter_is("replaying")
    begun = time.monotonic()
    shown = running.http.get(f"/jobs/{job}", params={"wait": "0.5"}).json()
    assert (shown["state"], shown["replaying"]) == ("DEAD", True)
    assert time.monotonic() - begun >= 0.5
    with running.http.stream("GET", f"/jobs/{job}/events", timeout=60) as answer:
        events = Events(answer)
        eventually(lambda: len(events.found) == 1, 20, "its state now")
        letter_is("open")  # the replay was cancelled
        eventually(lambda: len(events.found) == 2, 20, "that it has ended")
        told = [(data["state"], data["replaying"]) for _, data in events.found]
        assert told == [("DEAD", True), ("DEAD", False)]
        place = events.last_id
    again = running.http.get(f"/jobs/{job}/events", headers={"Last-Event-ID": place})
    assert again.status_code == 204
    assert running.http.get(f"/jobs/{job}", params={"wait": "60"}).json()["state"] == "DEAD"


def test_a_death_whose_letter_is_not_stored_yet_is_retried_in_a_moment(running: Stack) -> None:
    job = running.submit(TYPE, PAYLOAD, "k1")
    running.until(job, "QUEUED")
    running.database.execute(
        "update redrive.jobs set state = 'DEAD', reason = 'exception', finished_at = now()"
    )
    refused = ask(running, job, "retry")
    assert (refused.status_code, refused.headers["retry-after"]) == (409, "1")
    running.database.execute("update redrive.jobs set finished_at = now() - interval '1 day'")
    refused = ask(running, job, "retry")
    assert (refused.status_code, refused.headers.get("retry-after")) == (409, None)
    assert "was deleted" in refused.text
    assert running.database.value("select count(*) from redrive.replays") == 0
