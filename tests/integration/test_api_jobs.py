"""Jobs over HTTP, through a real uvicorn process, RabbitMQ and Postgres."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.support.stack import Stack
from tests.support.waiting import eventually

TYPE = "payments.charge_order"
CHARGE = {"order_id": "o-1", "amount_cents": 1999, "currency": "EUR"}
MIB = 1_048_576


@pytest.fixture
def api(running: Stack) -> httpx.Client:
    return running.http


def charge(api: httpx.Client, key: str, **changed: Any) -> httpx.Response:
    body = {"type": TYPE, "payload": {**CHARGE, **changed}}
    return api.post("/jobs", json=body, headers={"Idempotency-Key": key})


def post_raw(api: httpx.Client, body: bytes) -> httpx.Response:
    headers = {"Content-Type": "application/json", "Idempotency-Key": "raw"}
    return api.post("/jobs", content=body, headers=headers)


def test_bodies_made_to_cost_much_are_refused_in_few_words(api: httpx.Client) -> None:
    long_key = b'{"' + b"k" * 500_000 + b'":[' + b",".join([b"[]"] * 170_000) + b"]}"
    fields = ",".join(f'"f{number}":0' for number in range(80_000))
    many_fields = f'{{"type":"{TYPE}","payload":{{{fields}}}}}'.encode()
    for body, more in [(long_key, None), (many_fields, 80_003 - 20)]:
        refused = post_raw(api, body)
        assert refused.status_code == 422
        assert len(refused.content) < 10_000
        assert refused.json().get("more_errors") == more
        assert refused.json()["errors"]


def jobs(stack: Stack) -> int:
    return int(stack.database.value("select count(*) from redrive.jobs"))


def published(stack: Stack, queue: str = "payments") -> list[dict[str, Any]]:
    """Every message of a queue, once the outbox is empty."""
    eventually(
        lambda: stack.database.value("select count(*) from redrive.outbox") == 0, 10, "the outbox is empty"
    )
    return stack.vhost.get(queue, 1_000)


def test_an_accepted_job_is_published_at_once_and_shown(stack: Stack) -> None:
    stack.apply_topology()
    stack.start_api(REDRIVE_API_RELAY_POLL_S="60")  # it does not wait for the next look
    api = stack.http
    first = charge(api, "k0").json()["id"]
    eventually(
        lambda: stack.job(first)["state"] == "QUEUED", 10, "the relay runs, and has nothing left to do"
    )
    stack.vhost.get("payments")
    answer = charge(api, "k1")
    assert answer.status_code == 202, answer.text
    job = answer.json()
    assert answer.headers["location"] == f"/jobs/{job['id']}"
    assert "idempotent-replayed" not in answer.headers
    assert (job["state"], job["attempt"], job["type"], job["queue"]) == ("PENDING", 1, TYPE, "payments")
    eventually(lambda: stack.job(job["id"])["state"] == "QUEUED", 10, "the job is QUEUED")
    (message,) = published(stack)
    properties = message["properties"]
    assert properties["headers"]["redrive-attempt"] == "1.1"
    assert properties["headers"]["task"] == TYPE
    assert properties["message_id"] == properties["correlation_id"] == job["id"]
    assert properties["delivery_mode"] == 2
    assert json.loads(base64.b64decode(message["payload"]))[:2] == [[], CHARGE]
    shown = stack.job(job["id"])
    assert [step["state"] for step in shown["history"]] == ["PENDING", "QUEUED"]
    assert (shown["started_at"], shown["finished_at"], shown["result"], shown["attempts"]) == (
        None,
        None,
        None,
        [],
    )


def test_a_resent_request_gets_the_same_answer_and_no_second_job(api: httpx.Client, running: Stack) -> None:
    first = charge(api, "k1")
    eventually(lambda: running.job(first.json()["id"])["state"] == "QUEUED", 10, "the job has moved on")
    again = charge(api, "k1")
    by_body = api.post("/jobs", json={"type": TYPE, "payload": CHARGE, "idempotency_key": "k1"})
    for answer in (again, by_body):
        assert answer.status_code == 202
        assert answer.headers["idempotent-replayed"] == "true"
        assert answer.headers["location"] == first.headers["location"]
        assert answer.content == first.content
    assert jobs(running) == 1
    assert len(published(running)) == 1


def test_a_key_whose_job_died_still_names_that_job_and_submits_nothing(
    api: httpx.Client, running: Stack
) -> None:
    first = charge(api, "k1")
    assert len(published(running)) == 1
    job_id = first.json()["id"]
    eventually(lambda: running.job(job_id)["state"] == "QUEUED", 10, "the relay is done with it")
    running.database.execute(
        "update redrive.jobs set state = 'DEAD', reason = 'exception', finished_at = now()"
    )
    again = charge(api, "k1")
    assert again.status_code == 202
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == f"/jobs/{job_id}"
    assert (jobs(running), len(published(running))) == (1, 0)
    assert running.job(job_id)["state"] == "DEAD"


def test_fifty_equal_requests_at_once_on_two_processes_make_one_job(
    api: httpx.Client, running: Stack
) -> None:
    key = api.headers["Authorization"]
    first = str(api.base_url)
    running.start_api()
    urls = [first, str(running.http.base_url)]
    body = {"type": TYPE, "payload": CHARGE, "idempotency_key": "k1"}

    def send(number: int) -> httpx.Response:
        return httpx.post(f"{urls[number % 2]}/jobs", json=body, headers={"Authorization": key}, timeout=30)

    with ThreadPoolExecutor(50) as threads:
        answers = list(threads.map(send, range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.content for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    assert jobs(running) == 1
    assert len(published(running)) == 1


def test_a_key_belongs_to_its_request_and_to_its_caller(api: httpx.Client, running: Stack) -> None:
    assert charge(api, "k1").status_code == 202
    conflict = charge(api, "k1", amount_cents=5)
    assert conflict.status_code == 422
    assert conflict.json()["errors"][0]["field"] == "Idempotency-Key"
    other = json.loads(running.command("api.keys_cli:main", "create", "other", "--json").stdout)["key"]
    answer = api.post(
        "/jobs",
        json={"type": TYPE, "payload": {**CHARGE, "amount_cents": 5}, "idempotency_key": "k1"},
        headers={"Authorization": f"Bearer {other}"},
    )
    assert answer.status_code == 202
    assert "idempotent-replayed" not in answer.headers
    assert jobs(running) == 2


def test_a_refused_request_does_not_use_its_key_up(api: httpx.Client) -> None:
    assert charge(api, "k1", amount_cents=-1).status_code == 422
    answer = charge(api, "k1")
    assert answer.status_code == 202
    assert "idempotent-replayed" not in answer.headers


def chunks(size: int) -> Iterator[bytes]:
    for start in range(0, size, 65_536):
        yield b" " * min(65_536, size - start)


BAD: list[tuple[str, int, str, dict[str, Any]]] = [
    ("missing key", 400, "Idempotency-Key", {"json": {"type": TYPE, "payload": CHARGE}}),
    ("not json", 400, "body", {"content": b"{"}),
    ("empty", 400, "body", {"content": b""}),
    ("not utf-8", 400, "body", {"content": b'{"a": "\xff"}'}),
    ("unknown type", 422, "type", {"json": {"type": "nope", "payload": {}, "idempotency_key": "k"}}),
    ("no payload", 422, "payload", {"json": {"type": TYPE, "idempotency_key": "k"}}),
    ("array", 422, "body", {"content": b"[]"}),
    ("nan", 422, "payload.amount_cents", {"content": b'{"payload": {"amount_cents": NaN}}'}),
    ("infinity", 422, "payload.amount_cents", {"content": b'{"payload": {"amount_cents": Infinity}}'}),
    ("1e400", 422, "payload.amount_cents", {"content": b'{"payload": {"amount_cents": 1e400}}'}),
    ("duplicate key", 422, "type", {"content": b'{"type": "a", "type": "b"}'}),
    ("deep", 422, "body", {"content": b"[" * 100_000}),
    ("deep and closed", 422, "body", {"content": b"[" * 100_000 + b"]" * 100_000}),
    ("content type", 415, "Content-Type", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}),
    (
        "charset",
        415,
        "Content-Type",
        {"content": b"{}", "headers": {"Content-Type": "application/json; charset=utf-16"}},
    ),
    ("no content type", 415, "Content-Type", {"content": b"{}", "headers": {"Content-Type": ""}}),
    ("too large", 413, "body", {"content": b" " * (MIB + 1)}),
    ("too large in chunks", 413, "body", {"content": chunks(4 * MIB)}),
    ("long key", 400, "Idempotency-Key", {"json": {}, "headers": {"Idempotency-Key": "k" * 10_000}}),
    (
        "unequal keys",
        400,
        "idempotency_key",
        {"json": {"idempotency_key": "a"}, "headers": {"Idempotency-Key": "b"}},
    ),
    ("empty key", 400, "idempotency_key", {"json": {"idempotency_key": ""}}),
    ("nul in key", 400, "idempotency_key", {"json": {"idempotency_key": "a\x00"}}),
]


def test_bad_requests_are_problems_that_name_the_field_and_store_nothing(
    api: httpx.Client, running: Stack
) -> None:
    for name, status, field, request in BAD:
        headers = {"Content-Type": "application/json"} | request.pop("headers", {})
        answer = api.post("/jobs", headers=headers, **request)
        assert (name, answer.status_code) == (name, status), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert (name, problem["status"], problem["errors"][0]["field"]) == (name, status, field)
        assert problem.keys() == {"type", "title", "status", "detail", "errors"}
    assert jobs(running) == 0
    assert running.database.value("select count(*) from redrive.idempotency_keys") == 0
    assert charge(api, "k").status_code == 202  # and it still works


def test_a_body_of_exactly_the_limit_is_read(api: httpx.Client) -> None:
    body = {
        "type": "emails.send_email",
        "payload": {"email_key": "e", "to": "a@b.cd", "subject": "s", "body": ""},
    }
    room = MIB - len(json.dumps(body).encode())
    body["payload"]["body"] = "x" * room  # type: ignore[index]
    text = json.dumps(body).encode()
    assert len(text) == MIB
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    assert api.post("/jobs", content=text, headers=headers).status_code == 202
    assert api.post("/jobs", content=text + b" ", headers=headers).status_code == 413


def test_numbers_that_json_lacks_are_named_and_long_integers_stay_exact(
    api: httpx.Client, running: Stack
) -> None:
    def submit(value: str) -> httpx.Response:
        payload = f'{{"event_id": "e", "kind": "k", "data": {{"list": [1, {value}]}}}}'
        text = f'{{"type": "webhooks.handle_webhook", "payload": {payload}, "idempotency_key": "k"}}'
        return post_raw(api, text.replace('"k"}', '"raw"}').encode())

    for value in ("NaN", "Infinity", "-Infinity", "1e400", '{"a": 1, "a": 2}'):
        refused = submit(value)
        field = "payload.data.list.1" + (".a" if "a" in value[1:3] and "{" in value else "")
        assert (value, refused.status_code, refused.json()["errors"][0]["field"]) == (value, 422, field)
    assert jobs(running) == 0
    long = 10**29 + 7
    assert submit(str(long)).status_code == 202
    (message,) = published(running, "webhooks")
    assert json.loads(base64.b64decode(message["payload"]))[1]["data"] == {"list": [1, long]}
    assert json.loads(running.database.value("select payload from redrive.jobs"))["data"] == {
        "list": [1, long]
    }


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"text": "a\x00b"}, "payload.data.text"),
        ({"list": ["fine", {"deep": "\ud800"}]}, "payload.data.list.1.deep"),
        ({"\udfff": 1}, "payload.data."),
        ({"text": "\udc00\ud800"}, "payload.data.text"),
    ],
)
def test_nul_and_half_a_pair_of_surrogates_are_named_and_nothing_is_stored(
    api: httpx.Client, running: Stack, data: dict[str, Any], field: str
) -> None:
    payload = {"event_id": "e", "kind": "k", "data": data}
    text = json.dumps({"type": "webhooks.handle_webhook", "payload": payload, "idempotency_key": "k"})
    answer = api.post("/jobs", content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422, answer.text
    (fault,) = answer.json()["errors"]
    assert fault["field"].startswith(field)
    assert running.database.value("select count(*) from redrive.jobs") == 0


def test_whole_characters_and_what_looks_like_an_escape_travel_unharmed(
    api: httpx.Client, running: Stack
) -> None:
    payload = {"event_id": "e", "kind": "k", "data": {"text": "\U0001f600 \\u0000 \\ud800", "\U0001f600": 1}}
    text = json.dumps({"type": "webhooks.handle_webhook", "payload": payload, "idempotency_key": "k"})
    answer = api.post("/jobs", content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == 202, answer.text
    (message,) = published(running, "webhooks")
    assert json.loads(base64.b64decode(message["payload"]))[1] == payload
    assert json.loads(running.database.value("select payload from redrive.jobs")) == payload


def test_results_are_given_when_there_is_one(api: httpx.Client, running: Stack) -> None:
    job_id = charge(api, "k1").json()["id"]
    assert api.get("/jobs/no-such-job").status_code == 404
    assert api.get("/jobs/no-such-job/result").status_code == 404
    assert api.get("/jobs/a%00b").status_code == 404
    waiting = api.get(f"/jobs/{job_id}/result")
    assert (waiting.status_code, waiting.json()["type"]) == (409, "urn:redrive:problem:not-finished")
    done = "update redrive.jobs set state = 'SUCCEEDED', result = $1, finished_at = now()"
    running.database.execute(done, b'{"paid": true, "rate": NaN, "note": "\\ud800"}')
    answer = api.get(f"/jobs/{job_id}/result")
    assert answer.status_code == 200
    assert answer.json() == {"paid": True, "rate": {"$float": "NaN"}, "note": "\ud800"}
    assert api.get(f"/jobs/{job_id}").json()["result"] == answer.json()
    running.database.execute("update redrive.jobs set state = 'DEAD', reason = 'exception', result = null")
    dead = api.get(f"/jobs/{job_id}/result")
    assert (dead.status_code, dead.json()["type"]) == (409, "urn:redrive:problem:no-result")


def test_unknown_routes_and_methods_are_problems_too(api: httpx.Client) -> None:
    for answer, status in ((api.get("/nope"), 404), (api.delete("/jobs/x"), 405)):
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_a_job_whose_row_somebody_has_while_it_is_published_is_queued_afterwards(running: Stack) -> None:
    database, lock = running.database, 4711
    database.execute(
        "create function hold_relay() returns trigger language plpgsql as"
        f" $$ begin perform pg_advisory_xact_lock_shared({lock}); return old; end $$"
    )
    database.execute(
        "create trigger hold_relay before delete on redrive.outbox for each row execute function hold_relay()"
    )
    waits = f"select count(*) from pg_locks where locktype = 'advisory' and objid = {lock} and not granted"
    try:
        with ExitStack() as row:
            with database.locked(f"select pg_advisory_xact_lock({lock})"):
                job = charge(running.http, "held").json()["id"]
                eventually(lambda: database.value(waits), 20, "the relay records the confirm")
                row.enter_context(database.locked(f"select from redrive.jobs where id = '{job}' for update"))
            eventually(lambda: not database.fetch("select from redrive.outbox"), 20, "it is recorded")
            assert running.job(job)["state"] == "PENDING"
        running.until(job, "QUEUED")
    finally:
        database.execute("drop function hold_relay cascade")
