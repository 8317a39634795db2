"""A job and a letter are shown alike by the command and over HTTP, with the fields that others build on."""

from __future__ import annotations

import json

from dev.thirdparty.client import ThirdPartyClient
from tests.support.stack import Stack
from tests.support.waiting import eventually

JOB = {
    "id", "type", "queue", "state", "attempt", "created_at", "started_at", "finished_at", "result", "error",
    "attempts", "history",
}  # fmt: skip
LETTER = {
    "id", "queue", "reason", "state", "message_id", "job_id", "task", "group", "body_sha256", "body_size",
    "dead_at", "stored_at", "deaths", "headers", "attempts", "replays",
}  # fmt: skip


def test_a_job_and_its_letter_have_the_same_shape_everywhere(
    stack: Stack, third_party: ThirdPartyClient
) -> None:
    third_party.fail("/payments", {"status": 400}, then="repeat")
    stack.apply_topology()
    stack.start_api()
    stack.start_worker(concurrency=1)
    stack.start_consumer()
    payload = {"payment_id": "p-1", "amount_cents": 5, "currency": "EUR"}
    accepted = stack.http.post(
        "/jobs",
        json={"type": "payments.call_payment_api", "payload": payload},
        headers={"Idempotency-Key": "p-1"},
    ).json()
    dead = stack.until(accepted["id"], "DEAD")
    (listed,) = eventually(lambda: stack.http.get("/dead-letters").json()["letters"], 20, "the letter")

    shown = stack.http.get(f"/dead-letters/{listed['id']}").json()
    on_list = json.loads(stack.dlq("list", "--json").stdout)
    by_command = json.loads(stack.dlq("show", str(listed["id"]), "--json").stdout)

    assert accepted.keys() >= JOB
    assert dead.keys() >= JOB
    assert listed.keys() >= LETTER
    assert shown.keys() >= LETTER
    assert on_list == listed
    assert by_command == shown
