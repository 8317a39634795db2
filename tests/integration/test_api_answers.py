"""Every answer that the OpenAPI document shows is given by the real thing, as it is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from dev.thirdparty.client import ThirdPartyClient
from tests.support.documented import Document, document
from tests.support.event_stream import Events
from tests.support.receiver import Receiver
from tests.support.stack import Stack
from tests.support.waiting import eventually

TYPE = "payments.charge_order"
WHY = {"note": "why"}
SETTINGS = {"REDRIVE_CALLBACK_SECRET": "secret", "REDRIVE_CALLBACK_ALLOW": "127.0.0.1"}


@pytest.fixture
def running(stack: Stack, third_party: ThirdPartyClient) -> Stack:
    stack.third_party = third_party
    stack.settings |= SETTINGS
    stack.apply_topology()
    stack.start_api()
    stack.start_worker(concurrency=1)
    stack.start_consumer()
    return stack


class Seen:
    """Which answers came: operation, status and media type. What they say `hold` looks at."""

    def __init__(self, http: httpx.Client, documented: Document) -> None:
        self.answers: set[tuple[str, int, str]] = set()
        self._documented = documented
        self._hooks = http.event_hooks
        http.event_hooks = {"response": [*http.event_hooks["response"], self._note]}
        self.http = http

    def _note(self, answer: httpx.Response) -> None:
        if found := self._documented.operation(answer.request.method, answer.url.path):
            media = answer.headers.get("content-type", "").partition(";")[0]
            self.answers.add((found[0], answer.status_code, media))

    def end(self) -> None:
        self.http.event_hooks = self._hooks


@contextmanager
def seen(stack: Stack) -> Iterator[Seen]:
    made = Seen(stack.http, document())
    try:
        yield made
    finally:
        made.end()


def shown(documented: Document) -> set[tuple[str, int, str]]:
    """Each good answer that the document has."""
    return {
        (f"{method.upper()} {path}", int(status), media)
        for path, item in documented.whole["paths"].items()
        for method, operation in item.items()
        for status, answer in operation["responses"].items()
        if status.startswith("2")
        for media in answer.get("content", {"": None})
    }


class Client:
    """Asks, and insists on the status."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def get(self, url: str, status: int = 200, **headers: str) -> httpx.Response:
        answer = self.http.get(url, headers=headers)
        assert answer.status_code == status, (url, answer.text)
        return answer

    def post(self, url: str, body: Any = None, status: int = 200) -> Any:
        answer = self.http.post(url, json=body)
        assert answer.status_code == status, (url, answer.text)
        return answer.json()


def tomorrow() -> str:
    return (datetime.now(UTC) + timedelta(days=1)).isoformat()


def charge(key: str, **asked: Any) -> dict[str, Any]:
    payload = {"order_id": key, "amount_cents": 1999, "currency": "EUR"}
    return {"type": TYPE, "payload": payload, "idempotency_key": key, **asked}


def test_each_good_answer_is_given_and_is_what_the_document_shows(running: Stack, hook: Receiver) -> None:
    documented, ask, party = document(), Client(running.http), running.third_party
    assert party is not None
    with seen(running) as found, running.http.stream("GET", "/stream", timeout=120) as live:
        events = Events(live)
        eventually(lambda: events.last_id != "", 30, "the stream begins")

        # One is charged; one is refused by the provider, dies, and runs again.
        done = ask.post("/jobs", charge("good", callback_url=hook.url), 202)["id"]
        running.until(done, "SUCCEEDED")
        party.fail("/charges", {"status": 400}, match={"order_id": "bad"})
        dead = ask.post("/jobs", charge("bad"), 202)["id"]
        running.until(dead, "DEAD")
        letter = eventually(lambda: running.job(dead)["letter_id"], 30, "its letter is stored")
        follow_jobs(ask, done, documented)
        cancel_jobs(running, ask)
        decide_on_groups_and_alerts(ask, letter)
        handle_letters(running, ask, letter)
        replay_letters(running, ask, letter, dead)
        eventually(lambda: {name for name, _ in events.found} >= {"letter", "replay"}, 60, "both events")
        tell_again(ask, hook)
        look_around(ask)
    content = documented.operation("GET", "/stream")
    assert content is not None
    of_events = content[1]["responses"]["200"]["content"]["text/event-stream"]["x-events"]
    for name, data in events.found:
        assert documented.faults(of_events[name], data) == [], name
    for told in hook.taken:
        assert documented.faults({"$ref": "#/components/schemas/JobEnded"}, json.loads(told.body)) == []
    assert sorted(shown(documented) - found.answers) == [], "never seen"


def follow_jobs(ask: Client, job: str, documented: Document) -> None:
    assert ask.post("/jobs/batch", {"jobs": [charge("b1"), charge("b2")]}, 202)["refused"] == 0
    assert ask.post("/jobs/batch", {"jobs": [charge("b1"), charge("b3", priority="x")]}, 207)["refused"] == 1
    assert len(ask.get("/jobs?limit=2").json()["jobs"]) == 2
    assert ask.get(f"/jobs/{job}").json()["state"] == "SUCCEEDED"
    assert ask.get(f"/jobs/{job}/result").json()["charged"] is True
    assert ask.get("/job-types").json()["job_types"]
    told = ask.get(f"/jobs/{job}/events")
    operation = documented.operation("GET", f"/jobs/{job}/events")
    assert operation is not None
    content = operation[1]["responses"]["200"]["content"]["text/event-stream"]
    assert documented.body_faults(content, "text/event-stream", told.text) == []
    last = told.text.partition("id: ")[2].partition("\n")[0]
    ask.get(f"/jobs/{job}/events", 204, **{"Last-Event-ID": last})


def cancel_jobs(stack: Stack, ask: Client) -> None:
    waits = ask.post("/jobs", charge("waits", delay_s=600, priority=3, expires=tomorrow()), 202)
    assert ask.post(f"/jobs/{waits['id']}/cancel", WHY)["state"] == "CANCELLED"
    assert stack.third_party is not None
    stack.third_party.fail("/charges", {"delay": 20}, match={"order_id": "slow"})
    runs = ask.post("/jobs", charge("slow"), 202)["id"]
    stack.until(runs, "RUNNING")
    assert ask.post(f"/jobs/{runs}/cancel", WHY, 202)["cancel_requested"] is True


def decide_on_groups_and_alerts(ask: Client, letter: int) -> None:
    (group,) = (each["fingerprint"] for each in ask.get("/groups").json()["groups"])
    assert ask.get(f"/groups/{group}").json()["example"]["id"] == letter
    ask.post(f"/groups/{group}/notes", WHY, 201)
    for decision in ("resolve", "reopen", "ignore"):
        assert ask.post(f"/groups/{group}/{decision}", WHY)["notes"][-1]["action"] == decision
    test = ask.post("/alerts/test", None, 202)["id"]
    assert ask.get(f"/alerts/{test}").json()["kind"] == "test"
    assert {each["kind"] for each in ask.get("/alerts").json()["alerts"]} >= {"first_seen", "test"}
    ask.post("/alerts/snooze", {"subject": group[:8], "until": "2099-01-01T00:00:00Z"})
    assert ask.post("/alerts/unsnooze", {"subject": group})["snoozed_until"] is None


def handle_letters(stack: Stack, ask: Client, letter: int) -> None:
    stack.publish("payments", b"{")
    stack.publish("emails", b"\x80\x04.")
    eventually(lambda: len(ask.get("/dead-letters").json()["letters"]) == 3, 30, "three letters are stored")
    ask.get("/dead-letters/stats")
    assert ask.get("/dead-letters/export").text.count("\n") == 3
    change = {"patch": [{"op": "replace", "path": "/kwargs/amount_cents", "value": 500}]}
    assert ask.post(f"/dead-letters/{letter}/edit", change | {"dry_run": True})["changes"]
    assert ask.post(f"/dead-letters/{letter}/edit", change)["edit"]["body"]["json"]
    assert ask.post(f"/dead-letters/{letter}/withdraw", {})["edit"] is None
    assert ask.post(f"/dead-letters/{letter}/discard", WHY)["state"] == "discarded"
    assert len(ask.post(f"/dead-letters/{letter}/restore", WHY)["history"]) == 4
    chosen = {"filter": {"reason": "undecodable"}}
    expected = ask.post("/dead-letters/discard", chosen | {"dry_run": True} | WHY)["letters"]
    assert ask.post("/dead-letters/discard", chosen | {"expect": expected} | WHY) == {"discarded": expected}
    assert ask.post("/dead-letters/restore", chosen | {"expect": expected}) == {"restored": expected}
    for each in ask.get("/dead-letters").json()["letters"]:
        ask.get(f"/dead-letters/{each['id']}")


def replay_letters(stack: Stack, ask: Client, letter: int, dead: str) -> None:
    assert stack.third_party is not None
    stack.third_party.heal()
    poison = {"filter": {"reason": "undecodable"}, "rate": 0.001}
    assert ask.post("/replays", poison | {"dry_run": True})["to_send"] > 0
    plan = ask.post("/replays", poison | WHY, 202)["id"]
    for action, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        assert ask.post(f"/replays/{plan}/{action}", WHY)["state"] == state
    again = ask.post(f"/jobs/{dead}/retry", WHY, 202)["id"]
    eventually(lambda: stack.job(dead)["state"] == "SUCCEEDED", 60, "it runs again, and well")
    eventually(lambda: ask.get(f"/replays/{again}").json()["outcomes"] == {"succeeded": 1}, 60, "its outcome")
    assert len(ask.get("/replays").json()["replays"]) == 2
    assert ask.get(f"/dead-letters/{letter}").json()["replays"][-1]["outcome"] == "succeeded"


def tell_again(ask: Client, hook: Receiver) -> None:
    eventually(lambda: ask.get("/callbacks?state=delivered").json()["callbacks"], 60, "the callback came")
    (callback,) = ask.get("/callbacks").json()["callbacks"]
    came = len(hook.taken)
    assert ask.post(f"/callbacks/{callback['id']}/retry", WHY, 202)["retries"]
    eventually(lambda: len(hook.taken) > came, 60, "it came again")
    assert ask.get(f"/callbacks/{callback['id']}").json()["answers"]


def look_around(ask: Client) -> None:
    assert len(ask.get("/queues").json()["queues"]) == 5
    ask.get("/queues/payments")
    for form in ("json", "svg", "mermaid"):
        ask.get(f"/topology?format={form}")
    assert ask.get("/audit").json()["entries"]
    for path in ("/healthz", "/readyz", "/metrics"):
        ask.get(path)
