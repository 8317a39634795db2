"""What is let in and what each answer carries, through a real uvicorn process."""

from __future__ import annotations

import gzip
import json
import select
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.support import letter_rows
from tests.support.memory import peak_bytes
from tests.support.processes import Process
from tests.support.shared import Places, Shared
from tests.support.stack import Stack
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.wire import properties

MIB = 1_048_576
CHARGE = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}
SECURE = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Stack]]:
    def make(vhost: Vhost, database: Any, processes: Any) -> Stack:
        stack = Stack(vhost, database, processes)
        stack.apply_topology()
        stack.start_api(REDRIVE_API_DOCS="true", REDRIVE_API_BODY_TIMEOUT_S="2")
        return stack

    with places.shared(make) as shared:
        yield shared


@pytest.fixture
def api(running: Stack) -> httpx.Client:
    return running.http


def test_every_answer_keeps_to_itself(api: httpx.Client) -> None:
    answers = [
        api.get("/healthz"),
        api.get("/readyz"),
        api.get("/job-types"),
        api.get("/nope"),
        api.get("/job-types", headers={"Authorization": ""}),
        api.delete("/jobs"),
        api.post("/jobs", content=b"{", headers={"Content-Type": "application/json"}),
        api.get("/jobs/none"),
        api.get("/metrics"),
    ]
    for answer in answers:
        found = {name: answer.headers.get(name) for name in SECURE}
        assert found == SECURE, answer.url
        assert "server" not in answer.headers
        assert "strict-transport-security" not in answer.headers
    docs = api.get("/docs")
    assert "script-src 'unsafe-inline' https://cdn.jsdelivr.net;" in docs.headers["content-security-policy"]
    assert api.get("/openapi.json").headers["content-security-policy"] == SECURE["content-security-policy"]
    by_https = api.get("/healthz", headers={"X-Forwarded-Proto": "https"})
    assert by_https.headers["strict-transport-security"] == "max-age=31536000"


def test_a_fault_of_the_server_keeps_to_itself_too(running: Stack) -> None:
    running.database.execute("alter table redrive.audit add constraint broken check (false) not valid")
    try:
        body = {"type": "payments.charge_order", "payload": CHARGE, "idempotency_key": "k"}
        answer = running.http.post("/jobs", json=body)
    finally:
        running.database.execute("alter table redrive.audit drop constraint broken")
    assert answer.status_code == 500
    assert {name: answer.headers.get(name) for name in SECURE} == SECURE
    assert "audit" not in answer.text


def test_other_sites_and_odd_methods_get_nothing(api: httpx.Client) -> None:
    asked = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    for method in ("OPTIONS", "TRACE", "GET", "POST", "PUT", "PATCH"):
        answer = api.request(method, "/jobs", headers=asked)
        assert not [name for name in answer.headers if name.startswith("access-control-")], method
        if method not in ("GET", "POST"):
            assert (method, answer.status_code) == (method, 405)


def test_long_urls_and_many_or_large_headers_are_refused(api: httpx.Client) -> None:
    cases: list[tuple[int, str, httpx.Response]] = [
        (414, "url", api.get(f"/jobs/{'x' * 8_200}")),
        (414, "url", api.get("/jobs", params={"cursor": "x" * 8_200})),
        (431, "headers", api.get("/jobs", headers={f"X-{number}": "" for number in range(101)})),
        (431, "headers", api.get("/jobs", headers={"X-Large": "x" * 16_400})),
    ]
    for status, field, answer in cases:
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (status, field)
        assert answer.headers["content-type"] == "application/problem+json"
    # Beyond what the server reads of a head.
    assert api.get("/jobs", headers={"X-Large": "x" * 100_000}).status_code in (400, 431)
    assert api.get("/healthz").status_code == 200


def raw(stack: Stack, head: str, body: bytes = b"") -> socket.socket:
    url = stack.http.base_url
    made = socket.create_connection((url.host, url.port), timeout=30)
    lines = [head, f"Host: {url.host}", f"Authorization: {stack.http.headers['Authorization']}"]
    try:
        made.sendall("\r\n".join(lines).encode() + b"\r\n" + body)
    except BaseException:
        made.close()
        raise
    return made


def everything(connection: socket.socket) -> bytes:
    got = b""
    while chunk := connection.recv(65_536):
        got += chunk
    return got


def test_a_body_that_does_not_come_is_not_waited_for(running: Stack) -> None:
    head = "POST /jobs HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000"
    with closing(raw(running, head, b"\r\n{")) as slow:
        assert everything(slow).startswith(b"HTTP/1.1 408 ")
    chunked = "POST /jobs HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    with closing(raw(running, chunked, b"\r\n1\r\n{\r\n")) as slow:
        assert everything(slow).startswith(b"HTTP/1.1 408 ")
    assert running.http.get("/healthz").status_code == 200


def test_an_encoded_body_is_refused_as_one(api: httpx.Client) -> None:
    body = json.dumps({"type": "payments.charge_order", "payload": CHARGE, "idempotency_key": "k"}).encode()
    for encoding, sent in (("gzip", gzip.compress(body)), ("gzip", body), ("br, identity", body)):
        headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
        answer = api.post("/jobs", content=sent, headers=headers)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (415, "Content-Encoding")
        assert answer.headers["accept-encoding"] == "identity"
    plain = {"Content-Type": "application/json", "Content-Encoding": "Identity"}
    assert api.post("/jobs", content=body, headers=plain).status_code == 202


def test_the_connection_of_a_request_with_two_lengths_is_closed(running: Stack) -> None:
    body = json.dumps({"type": "payments.charge_order", "payload": CHARGE, "idempotency_key": "k"}).encode()
    head = "POST /jobs HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    smuggled = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with closing(
        raw(running, head, b"Content-Length: 3\r\n\r\n%x\r\n%s\r\n0\r\n\r\n%s" % (len(body), body, smuggled))
    ) as both:
        answer = everything(both)  # returns, so that it is closed
    assert answer.startswith(b"HTTP/1.1 202 ")
    assert b"alive" not in answer


def test_a_refusal_does_not_repeat_what_was_sent(running: Stack) -> None:
    letter_rows.prepare(running.database)
    letter_rows.store_as(running.database, properties(content_type="application/json").encode(), b"{}")
    for operation in ({"op": "remove", "path": "x" * 500_000}, {"op": ["y"] * 100_000, "path": ""}):
        answer = running.http.post("/dead-letters/1/edit", json={"patch": [operation]})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "patch"), answer.text[:500]
        assert len(answer.content) < 2_000


def test_the_first_and_the_last_moment_are_times_like_others(running: Stack) -> None:
    first, last = "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59.999999+00:00"
    body = {"type": "payments.charge_order", "payload": CHARGE, "idempotency_key": "k", "expires": first}
    assert running.job(running.http.post("/jobs", json=body).json()["id"])["expires"] == first
    letter_rows.prepare(running.database)
    letter_rows.store(running.database, 4)
    # As the driver stores them, from an import for instance.
    running.database.execute(
        "update redrive.dead_letters set dead_at = case id % 2 when 0 then $1::timestamptz else $2 end",
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    )
    seen: list[str] = []
    page: dict[str, Any] = {"next_cursor": None}
    while not seen or page["next_cursor"]:
        query: dict[str, Any] = {"since": first, "limit": 1}
        query |= {"cursor": page["next_cursor"]} if seen else {}
        page = running.http.get("/dead-letters", params=query).raise_for_status().json()
        seen += [letter["dead_at"] for letter in page["letters"]]
    assert seen == [last, last, first, first]
    insert = "insert into redrive.groups (fingerprint, queue, reason) values ($1, 'q', 'exception')"
    running.database.execute(insert, "ab" * 16)
    ignored = running.http.post("/groups/abab/ignore", json={"note": "n", "until": last})
    assert ignored.json()["ignored_until"] == last


def test_bodies_of_more_values_than_are_taken_cost_little_memory(running: Stack) -> None:
    (process,) = _api(running)
    running.http.post("/jobs/batch", json={"jobs": []})
    before = peak_bytes(process.pid)
    headers = {"Content-Type": "application/json"}
    for unit in (b"[]", b"{}", b'{"a":0}', b'"ab"', b"1.5"):
        for path, size in (("/alerts/snooze", MIB), ("/jobs/batch", 8 * MIB)):
            count = (size - 100) // (len(unit) + 1)
            body = b'{"jobs":[' + b",".join([unit] * count) + b"]}"
            answer = running.http.post(path, content=body, headers=headers)
            assert answer.status_code == 422, (unit, path, answer.text[:300])
            assert answer.json()["errors"][0]["field"] in ("body", "jobs", "subject"), answer.text[:300]
    # As text, twice while it is put together; it took ten times as much as objects.
    assert peak_bytes(process.pid) - before < 100 * MIB


def test_large_bodies_at_once_are_held_up_to_a_bound(running: Stack) -> None:
    head = "POST /jobs/batch HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 8000000"
    part = b'\r\n{"jobs": [' + b" " * 7_900_000

    def send(_: int) -> str:
        try:
            with closing(raw(running, head, part)) as connection:
                return everything(connection).partition(b"\r\n")[0].decode()
        except ConnectionError:  # closed while the client was still sending
            return "closed"

    with ThreadPoolExecutor(12) as threads:
        found = Counter(threads.map(send, range(12)))
    held = found.pop("HTTP/1.1 408 Request Timeout")
    assert 1 <= held <= 8, found
    assert found.keys() <= {"HTTP/1.1 503 Service Unavailable", "closed"}
    body = {"type": "payments.charge_order", "payload": CHARGE, "idempotency_key": "k"}
    assert running.http.post("/jobs", json=body).status_code == 202, "what they held is given back"


def test_one_caller_holds_no_more_than_its_share_of_waiting_requests(running: Stack) -> None:
    job = running.submit("payments.charge_order", CHARGE, "k")
    other = running.command("api.keys_cli:main", "create", f"other-{id(running)}").stdout.strip()
    with ExitStack() as stack:

        def opened(path: str, count: int) -> list[bytes]:
            made = [raw(running, f"GET {path} HTTP/1.1", b"\r\n") for _ in range(count)]
            for each in made:
                stack.enter_context(closing(each))
            return sorted(each.recv(200).partition(b"\r\n")[0].split()[1] for each in made)

        assert opened("/stream", 17) == [b"200"] * 16 + [b"429"]
        assert opened(f"/jobs/{job}/events", 126) == [b"200"] * 125 + [b"429"]
        refused = running.http.get(f"/jobs/{job}", params={"wait": 5})
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:redrive:problem:too-many-open")
        answer = httpx.get(
            f"{running.http.base_url}/jobs/{job}",
            params={"wait": 0.1},
            headers={"Authorization": f"Bearer {other}"},
            timeout=30,
        )
        assert answer.status_code == 200

    def waits_again() -> bool:
        return running.http.get(f"/jobs/{job}", params={"wait": 0.1}).status_code == 200

    eventually(waits_again, 60, "whoever has gone is no longer counted")


def test_decisions_on_many_letters_keep_no_submission_waiting(running: Stack) -> None:
    letter_rows.prepare(running.database)
    body = {"filter": {"text": "body"}, "dry_run": True, "note": "n"}
    url, headers = f"{running.http.base_url}/dead-letters/discard", dict(running.http.headers)
    # More than connections of the pool.
    with ThreadPoolExecutor(12) as threads:
        with running.database.locked("lock table redrive.dead_letters in access exclusive mode"):
            asked = [
                threads.submit(httpx.post, url, json=body, headers=headers, timeout=60) for _ in range(12)
            ]
            begun = "select count(*) from redrive.audit where details is not null"
            eventually(lambda: running.database.value(begun) == 12, 30, "all are begun")
            running.submit("payments.charge_order", CHARGE, "k")
            assert not all(each.done() for each in asked)
        answers = [each.result(60) for each in asked]
    assert Counter(answer.status_code for answer in answers).keys() <= {200, 503}
    assert [answer for answer in answers if answer.status_code == 200]
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 503)


def test_whoever_stops_waiting_for_a_job_makes_room(running: Stack) -> None:
    job = running.submit("payments.charge_order", CHARGE, "k")

    def asked() -> int:
        return running.http.get(f"/jobs/{job}", params={"wait": 0.1}).status_code

    with ExitStack() as stack:
        made = [
            stack.enter_context(closing(raw(running, f"GET /jobs/{job}?wait=60 HTTP/1.1", b"\r\n")))
            for _ in range(126)
        ]
        answered, _, _ = select.select(made, [], [], 40)
        assert [each.recv(200)[:12] for each in answered] == [b"HTTP/1.1 429"]
    # Less than the time that they asked for.
    eventually(lambda: asked() == 200, 40, "those who have gone are not counted")


def test_a_client_that_goes_away_before_its_body_is_whole_is_no_defect(running: Stack) -> None:
    (process,) = _api(running)
    for path in ("/jobs", "/jobs/batch", "/alerts/snooze"):
        head = f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000"
        raw(running, head, b"\r\n{").close()

    def on_record() -> bool:
        query = {"operation": "POST /alerts/snooze", "limit": "1"}
        entries = running.http.get("/audit", params=query).json()["entries"]
        return [entry["status"] for entry in entries] == [400]

    eventually(on_record, 30, "it is on record")
    assert running.http.get("/healthz").status_code == 200
    assert "Traceback" not in process.log


@pytest.mark.parametrize("path", ["/stream", "/jobs/{job}/events"])
def test_a_stream_ends_when_its_key_is_revoked(running: Stack, path: str) -> None:
    job = running.submit("payments.charge_order", CHARGE, "k")
    name = "leaver-" + path.split("/")[1]
    key = running.command("api.keys_cli:main", "create", name).stdout.strip()
    url, headers = f"{running.http.base_url}{path.format(job=job)}", {"Authorization": f"Bearer {key}"}
    with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry:")
        assert running.command("api.keys_cli:main", "revoke", name).returncode == 0
        for _ in lines:  # ends, or times out
            pass


def _api(stack: Stack) -> list[Process]:
    return [each for each in stack.processes.started if each.name == "api"]
