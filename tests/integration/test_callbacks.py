"""Callbacks from submission to receiver, all processes running: an end is told once it can be read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dev.loopback_http import Request
from dev.sink.signature import verify
from tests.support.all_running import all_running
from tests.support.receiver import Receiver
from tests.support.shared import Places, Shared
from tests.support.stack import FINAL, Stack
from tests.support.waiting import eventually

TYPE = "webhooks.handle_webhook"
SETTINGS = {"REDRIVE_CALLBACK_SECRET": "new old", "REDRIVE_CALLBACK_ALLOW": "127.0.0.1"}


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Stack]]:
    with all_running(places, SETTINGS) as shared:
        yield shared


def body(key: str, **asked: Any) -> dict[str, Any]:
    return {
        "type": TYPE, "payload": {"event_id": key, "kind": "k", "data": {}}, "idempotency_key": key, **asked,
    }  # fmt: skip


def submit(stack: Stack, key: str, **asked: Any) -> str:
    answer = stack.http.post("/jobs", json=body(key, **asked))
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def told(hook: Receiver, count: int) -> list[dict[str, Any]]:
    eventually(lambda: len(hook.taken) >= count, 30, f"{count} callbacks")
    assert len(hook.taken) == count
    return [json.loads(request.body) for request in hook.taken]


def test_a_job_and_those_of_a_batch_tell_of_their_end_when_it_can_be_read(
    running: Stack, hook: Receiver
) -> None:
    read: dict[str, Any] = {}

    def look(request: Request) -> None:
        job = json.loads(request.body)["job"]["id"]
        read[job] = running.job(job)

    hook.before = look
    url = f"{hook.url}done?token=s3cret"
    job = submit(running, "a", callback_url=url)
    assert submit(running, "a", callback_url=url) == job
    other = running.http.post("/jobs", json=body("a", callback_url=f"{url}2"))
    assert other.status_code == 422, other.text
    batch = [body("b", callback_url=url), body("c"), body("d", callback_url=url, callback_on=["DEAD"])]
    answer = running.http.post("/jobs/batch", json={"jobs": batch})
    assert answer.status_code == 202, answer.text
    second, *rest = (each["id"] for each in answer.json()["results"])
    for each in rest:
        running.until(each, "SUCCEEDED")
    said = {each["job"]["id"]: each for each in told(hook, 2)}
    assert said.keys() == {job, second}
    for name, each in said.items():
        assert (each["event"], each["job"]["state"]) == ("job.ended", "SUCCEEDED")
        assert {key: read[name][key] for key in each["job"]} == each["job"]
        assert each["job"]["result"]["handled"] is True
    for request in hook.taken:
        assert (request.path, request.query) == ("/done", {"token": "s3cret"})
        assert request.headers["redrive-delivery"] == json.loads(request.body)["id"]
        for secret in ("new", "old"):
            verify(request.headers["redrive-signature"], request.body, secret, time.time())

    def recorded() -> dict[str, Any]:
        callback: dict[str, Any] = running.job(job)["callback"]
        assert callback["deliveries"][0]["state"] == "delivered"
        return callback

    shown = eventually(recorded, 10, "it is recorded")
    assert (shown["url"], shown["on"]) == (f"{hook.url}…", list(FINAL))
    (delivery,) = shown["deliveries"]
    assert (delivery["id"], delivery["tries"], delivery["last_answer"]["status"]) == (said[job]["id"], 1, 200)
    assert running.job(rest[0])["callback"] is None
    assert running.job(rest[1])["callback"]["deliveries"] == []
    for process in running.processes.started:
        assert "s3cret" not in process.log


def test_a_dead_job_that_is_run_again_tells_of_both_ends_and_a_cancelled_one_of_its(
    running: Stack, hook: Receiver
) -> None:
    assert running.third_party is not None
    running.third_party.fail("/webhooks/*", {"status": 400})
    job = submit(running, "a", callback_url=hook.url)
    (dead,) = told(hook, 1)
    assert (dead["job"]["state"], dead["job"]["generation"], dead["job"]["result"]) == ("DEAD", 1, None)
    assert dead["job"]["error"]
    assert dead["job"]["reason"]
    eventually(lambda: running.job(job)["letter_id"] is not None, 20, "its letter is stored")
    assert running.http.post(f"/jobs/{job}/retry", json={"note": "again"}).status_code == 202
    _, again = told(hook, 2)
    assert (again["job"]["state"], again["job"]["generation"]) == ("SUCCEEDED", 2)
    assert again["id"] != dead["id"]
    later = submit(running, "b", callback_url=hook.url, delay_s=3_600)
    assert running.http.post(f"/jobs/{later}/cancel", json={}).status_code == 200
    cancelled = told(hook, 3)[2]
    assert (cancelled["job"]["id"], cancelled["job"]["state"]) == (later, "CANCELLED")


def test_a_dead_callback_is_found_and_sent_again_over_http(running: Stack, hook: Receiver) -> None:
    hook.failing = [410]
    job = submit(running, "a", callback_url=f"{hook.url}?token=s3cret")

    def dead() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = running.http.get(
            "/callbacks", params={"state": "dead", "place": f"127.0.0.1:{hook.port}"}
        ).json()["callbacks"]
        return found

    (callback,) = eventually(dead, 30, "it is dead")
    place = f"/callbacks/{callback['id']}"
    assert (callback["job_id"], callback["url"], callback["retries"]) == (job, f"{hook.url}…", [])
    assert running.http.get(place).json() == callback
    assert running.http.post(f"{place}/retry", json={"by": "me"}).status_code == 422
    answer = running.http.post(f"{place}/retry", json={"note": "it is back"})
    assert (answer.status_code, answer.headers["location"], answer.json()["state"]) == (202, place, "pending")
    (retried,) = answer.json()["retries"]
    assert (retried["by"][:5], retried["note"]) == ("test-", "it is back")
    assert told(hook, 1)[0]["id"] == callback["id"]
    eventually(lambda: running.http.get(place).json()["state"] == "delivered", 20, "it is on record")
    unknown = "/callbacks/00000000-0000-0000-0000-000000000000"
    assert running.http.get(unknown).status_code == 404
    assert running.http.post(f"{unknown}/retry", json={}).status_code == 404
    assert running.http.get("/callbacks", params={"cursor": "x"}).status_code == 422
    assert running.http.get("/callbacks", params={"state": "nope"}).status_code == 422
    pages = running.http.get("/callbacks", params={"limit": 1, "job_id": job}).json()
    assert (len(pages["callbacks"]), pages["next_cursor"]) == (1, None)


def test_where_a_callback_may_not_lead_nothing_is_stored(running: Stack) -> None:
    for url in ("https://10.0.0.1/x", "https://[::ffff:169.254.169.254]/", "https://0x7f.1/", "ftp://h/"):
        answer = running.http.post("/jobs", json=body("a", callback_url=url))
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "callback_url")
        batch = running.http.post("/jobs/batch", json={"jobs": [body("a", callback_url=url)]})
        assert batch.json()["results"][0]["errors"][0]["field"] == "callback_url"
    assert running.database.value("select count(*) from redrive.jobs") == 0
