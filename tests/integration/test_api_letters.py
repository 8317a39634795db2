"""Dead letters and replays over HTTP, with the real dead-letter consumer beside the API."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pika
import pytest

from tests.support.stack import Stack
from tests.support.waiting import eventually
from topology.address import AmqpAddress
from topology.declare import connection


@pytest.fixture
def running(stack: Stack) -> Stack:
    stack.apply_topology()
    stack.settings["REDRIVE_WATCH"] = "theirs"
    stack.start_api()
    stack.start_consumer()
    return stack


def reject(stack: Stack, queue: str) -> None:
    """What a worker does with a message that it cannot work."""
    with connection(AmqpAddress.parse(stack.vhost.amqp_url), "test") as opened:
        channel = opened.channel()
        method, _, _ = channel.basic_get(queue)
        assert method is not None
        channel.basic_reject(method.delivery_tag, requeue=False)


def letters(stack: Stack, count: int, **query: str | int) -> list[dict[str, Any]]:
    def listed() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            stack.http.get("/dead-letters", params=query).raise_for_status().json()["letters"]
        )
        assert len(found) == count
        return found

    return eventually(listed, 15, f"{count} letters are stored")


def test_letters_are_listed_filtered_paged_and_shown_with_their_bytes(running: Stack) -> None:
    body = b"\xff\x00 no JSON"
    running.publish("payments", body, pika.BasicProperties(message_id="m-1", headers={"n": 5}))
    reject(running, "payments")
    running.publish("emails.dlq", b"{}")
    both = letters(running, 2)
    (letter,) = letters(running, 1, queue="payments")
    emails = next(one["id"] for one in both if one["id"] != letter["id"])
    for query, ids in [
        ({"queue": "payments.dlq", "since": "1h", "text": "no JSON"}, [letter["id"]]),
        ({"group": letter["group"]}, [letter["id"]]),
        ({"undecided": "true", "text": "{}"}, [emails]),
        ({"until": "1h ago"}, []),
        ({"exception": "ValueError"}, []),
        ({"job_id": "j"}, []),
    ]:
        answer = running.http.get("/dead-letters", params=query).raise_for_status().json()
        assert (query, [one["id"] for one in answer["letters"]]) == (query, ids)
    named = {
        "id",
        "queue",
        "reason",
        "state",
        "message_id",
        "job_id",
        "task",
        "group",
        "body_sha256",
        "body_size",
    }
    named |= {"dead_at", "stored_at", "deaths", "headers", "attempts", "replays"}
    assert named <= letter.keys()
    assert (letter["state"], letter["message_id"], letter["body_size"]) == ("open", "m-1", len(body))
    assert letter["body_sha256"] == hashlib.sha256(body).hexdigest()
    assert (letter["deaths"][0]["queue"], letter["deaths"][0]["reason"]) == ("payments", "rejected")
    assert letter["headers"]["n"] == 5
    dossier = running.http.get(f"/dead-letters/{letter['id']}").raise_for_status().json()
    assert dossier["body"] == {"hex": body.hex()}
    assert dossier["target"] == "payments"
    first = running.http.get("/dead-letters", params={"limit": 1}).json()
    second = running.http.get("/dead-letters", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert [first["letters"][0]["id"], second["letters"][0]["id"]] == [letter["id"] for letter in both]
    assert second["next_cursor"] is None
    discarded = running.http.get("/dead-letters", params={"state": "discarded"}).json()
    assert discarded == {"letters": [], "next_cursor": None}
    metrics = running.http.get("/metrics").text
    assert f'redrive_dead_letters{{queue="payments",reason="{letter["reason"]}",state="open"}} 1' in metrics
    for path in ("/dead-letters/999", "/replays/none"):
        assert running.http.get(path).status_code == 404
    for query in ({"state": "gone"}, {"limit": 0}, {"queue": "a\x00"}, {"cursor": "x"}, {"since": "soon"}):
        answer = running.http.get("/dead-letters", params=query)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, next(iter(query)))


def test_a_replay_is_created_once_carried_out_and_shown(running: Stack) -> None:
    running.publish("payments", b"work again", pika.BasicProperties(message_id="m-1"))
    reject(running, "payments")
    (letter,) = letters(running, 1)
    asked = {"letter_ids": [letter["id"]], "rate": 100, "note": "fixed"}
    answer = running.http.post("/replays", json=asked)
    assert answer.status_code == 202, answer.text
    plan = answer.json()
    assert (plan["state"], plan["requested_by"][:5], plan["note"]) == ("running", "test-", "fixed")
    assert [item["letter_id"] for item in plan["items"]] == [letter["id"]]
    eventually(lambda: running.depth("payments") == 1, 15, "the letter is back in its queue")
    again = running.http.post("/replays", json=asked)
    assert again.status_code == 409
    assert f"letter {letter['id']}" in again.json()["errors"][0]["message"]
    for skip in (False, True):
        told = running.http.post("/replays", json=asked | {"dry_run": True, "skip_ineligible": skip})
        assert (told.status_code, told.json()["to_send"], told.json()["refused"]) == (200, 0, not skip)

    def published() -> bool:
        shown = running.http.get(answer.headers["location"]).raise_for_status().json()
        return bool(shown["items"][0]["state"] == "published")

    eventually(published, 20, "that it was sent is on record")
    assert [one["id"] for one in running.http.get("/replays").json()["replays"]] == [plan["id"]]
    dossier = running.http.get(f"/dead-letters/{letter['id']}").json()
    assert dossier["state"] in ("replaying", "replayed")
    assert [replay["replay_id"] for replay in dossier["replays"]] == [plan["id"]]


WAITING = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
)


def test_of_two_replays_over_http_and_by_command_at_once_one_wins_and_the_other_is_told(
    running: Stack,
) -> None:
    running.publish("payments", b"work again", pika.BasicProperties(message_id="m-1"))
    reject(running, "payments")
    (letter,) = letters(running, 1)
    asked = {"letter_ids": [letter["id"]]}
    with ThreadPoolExecutor(2) as threads:
        with running.database.locked("select from redrive.dead_letters for update"):
            command = threads.submit(running.dlq, "replay", str(letter["id"]), "--no-wait")
            eventually(lambda: running.database.value(WAITING) == 1, 20, "the command waits for the letter")
            request = threads.submit(running.http.post, "/replays", json=asked)
            eventually(lambda: running.database.value(WAITING) == 2, 10, "so does the request")
        told = (command.result().returncode, request.result().status_code)
    assert told in [(0, 409), (4, 202)]
    assert len(running.http.get("/replays").json()["replays"]) == 1
    eventually(lambda: running.depth("payments") == 1, 15, "it is sent once")


BAD: list[tuple[Any, str]] = [
    ({}, "letter_ids"),
    ({"letter_ids": []}, "letter_ids"),
    ({"letter_ids": [True]}, "letter_ids.0"),
    ({"letter_ids": [2**63]}, "letter_ids.0"),
    ({"letter_ids": [12345]}, "letter_ids"),
    ({"letter_ids": [1], "rate": 0}, "rate"),
    ({"letter_ids": [1], "rate": 1e-310}, "rate"),
    ({"letter_ids": [1], "by": "me"}, "by"),
    ({"letter_ids": [1], "filter": {"queue": "payments"}}, "letter_ids"),
    ({"filter": {}}, "filter"),
    ({"filter": {"queue": "a\x00b"}}, "filter.queue"),
    ({"filter": {"since": "soon"}}, "filter.since"),
    ({"filter": {"colour": "red"}}, "filter.colour"),
    ({"letter_ids": [1], "canary": 0}, "canary"),
    ({"letter_ids": [1], "limit": 100_001}, "limit"),
    ({"letter_ids": [1], "to": ""}, "to"),
    ({"letter_ids": [1], "to": "é" * 200}, "to"),
    ({"letter_ids": [1], "breaker": True}, "breaker"),
    ([], "body"),
]


def test_a_bad_replay_request_names_its_field_and_plans_nothing(stack: Stack) -> None:
    stack.start_api()
    for body, field in BAD:
        answer = stack.http.post("/replays", json=body)
        assert (body, answer.status_code, answer.json()["errors"][0]["field"]) == (body, 422, field)
    assert stack.http.get("/replays").json() == {"replays": [], "next_cursor": None}
    for query, field in (({"cursor": "x"}, "cursor"), ({"limit": 0}, "limit")):
        answer = stack.http.get("/replays", params=query)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
    for verb in ("pause", "resume", "cancel"):
        assert stack.http.post(f"/replays/{uuid4()}/{verb}", json={}).status_code == 404
        assert stack.http.post("/replays/x/" + verb, json={}).status_code == 404
        assert stack.http.post(f"/replays/{uuid4()}/{verb}", json={"by": "me"}).status_code == 422


def test_a_replay_by_filter_is_told_then_made_paused_and_cancelled_over_http(running: Stack) -> None:
    for number in range(4):
        running.publish("payments", b"again", pika.BasicProperties(message_id=f"m-{number}"))
        reject(running, "payments")
    letters(running, 4)
    asked = {"filter": {"queue": "payments", "since": "1h", "text": "again"}, "limit": 3}
    told = running.http.post("/replays", json=asked | {"dry_run": True})
    assert told.status_code == 200
    assert (told.json()["letters"], told.json()["to_send"]) == (4, 3)
    assert running.http.get("/replays").json()["replays"] == []
    refused = running.http.post("/replays", json=asked | {"to": "nowhere"})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:redrive:problem:not-replayable")
    drained = running.http.post("/replays", json=asked | {"to": "theirs", "dry_run": True}).json()
    assert drained["left_out"] == {"theirs is drained (REDRIVE_WATCH)": 4}
    assert [len(ids) for ids in drained["left_out_letters"].values()] == [4]

    made = running.http.post("/replays", json=asked | {"rate": 0.2, "canary": 3, "note": "mended"})
    plan = made.json()
    assert (made.status_code, plan["letters"], plan["canary"], plan["breaker"]) == (202, 3, 3, 5)
    assert (plan["chosen_by"]["text"], plan["chosen_by"]["queue"]) == ("again", "payments")
    place = made.headers["Location"]
    eventually(lambda: running.depth("payments") >= 1, 20, "it has begun")
    paused = running.http.post(f"{place}/pause", json={"note": "not now"}).raise_for_status().json()
    assert (paused["state"], paused["eta_s"]) == ("paused", None)
    again = running.http.post(f"{place}/pause", json={})
    assert (again.status_code, again.json()["type"]) == (409, "urn:redrive:problem:replay-state")
    resumed = running.http.post(f"{place}/resume", json={}).raise_for_status().json()
    assert (resumed["state"], resumed["eta_s"] is not None) == ("running", True)
    cancelled = running.http.post(f"{place}/cancel", json={}).raise_for_status().json()
    assert cancelled["state"] == "cancelled"
    assert [event["action"] for event in cancelled["events"]] == ["pause", "resume", "cancel"]
    assert {event["by"] for event in cancelled["events"]} == {plan["requested_by"]}

    first = running.http.get(place, params={"limit": 2}).json()
    assert [one["position"] for one in first["items"]] == [1, 2]
    rest = running.http.get(place, params={"after": first["next"]}).json()
    assert ([one["position"] for one in rest["items"]], rest["next"]) == ([3], None)
    assert sum(first["states"].values()) == 3


def test_a_list_leaves_huge_headers_out_and_the_letter_has_them(running: Stack) -> None:
    huge = {f"h{number}": "y" * 10 for number in range(2_000)}
    running.publish("emails.dlq", b"x", pika.BasicProperties(headers=huge))
    (letter,) = letters(running, 1)
    assert letter["headers"].keys() == {"$left_out"}
    assert letter["headers"]["$left_out"] > 2_000 * 10
    assert running.http.get(f"/dead-letters/{letter['id']}").json()["headers"] == huge
