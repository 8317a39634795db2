"""Keys that are rotated, end and have limits, over real API processes and Postgres."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from api.keys import new_key
from tests.support.stack import Stack
from tests.support.waiting import eventually

CHARGE = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}
SUBMISSION = {"type": "payments.charge_order", "payload": CHARGE, "idempotency_key": "k"}


def keys(stack: Stack, *command: str) -> Any:
    done = stack.command("api.keys_cli:main", *command, "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines if command == ("list",) else lines[0]


def client(stack: Stack, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=stack.http.base_url, headers=headers, timeout=30)


def status(stack: Stack, key: str, path: str = "/job-types") -> int:
    with client(stack, key) as asking:
        return asking.get(path).status_code


def test_a_rotated_key_is_the_same_caller_and_the_old_one_works_until_the_overlap_ends(
    running: Stack,
) -> None:
    old = keys(running, "create", "shop")["key"]
    with client(running, old) as asking:
        first = asking.post("/jobs", json=SUBMISSION).json()["id"]
    rotated = keys(running, "rotate", "shop", "--overlap", "1h")
    assert [bool(secret["ends_at"]) for secret in rotated["secrets"]] == [True, False]
    for key in (old, rotated["key"]):
        with client(running, key) as asking:
            again = asking.post("/jobs", json=SUBMISSION)
            assert (again.status_code, again.json()["id"]) == (202, first)
    listed = next(key for key in keys(running, "list") if key["name"] == "shop")
    assert all(secret["last_used_at"] and "@" in secret["created_by"] for secret in listed["secrets"])
    visible = [secret["id"] for secret in listed["secrets"]]
    assert [f"rdk_{each}_" for each in visible] == [key[:13] for key in (old, rotated["key"])]
    assert old not in json.dumps(listed)

    newest = keys(running, "rotate", "shop", "--overlap", "0s")["key"]
    for key in (old, rotated["key"]):
        eventually(lambda key=key: status(running, key) == 401, 10, "the old key is refused")  # type: ignore[misc]
    assert status(running, newest) == 200


def test_a_revoked_key_is_refused_by_every_process_and_is_not_rotated(running: Stack) -> None:
    first = running.http.base_url
    running.start_api()
    key = keys(running, "create", "leaver")["key"]
    places = (first, running.http.base_url)

    def answers() -> set[int]:
        headers = {"Authorization": f"Bearer {key}"}
        return {httpx.get(f"{url}/job-types", headers=headers, timeout=30).status_code for url in places}

    assert answers() == {200}
    assert running.command("api.keys_cli:main", "revoke", "leaver").returncode == 0
    eventually(lambda: answers() == {401}, 10, "it is refused everywhere")
    done = running.command("api.keys_cli:main", "rotate", "leaver")
    assert (done.returncode, done.stdout) == (4, "")
    listed = running.command("api.keys_cli:main", "list").stdout
    (line,) = (line for line in listed.splitlines() if line.startswith("leaver"))
    assert "revoked " in line


def test_a_key_ends_when_it_expires_though_it_is_remembered(running: Stack) -> None:
    # On a busy machine it may take as long as that to make the key and to use it.
    for name, seconds in (("guest", "4s"), ("another", "16s"), ("third", "64s")):
        key = keys(running, "create", name, "--expires", seconds)["key"]
        if status(running, key) == 200:
            break
    else:
        pytest.fail("no key was good when it was new")
    eventually(lambda: status(running, key) == 401, 90, "it has expired")
    (listed,) = (each for each in keys(running, "list") if each["name"] == name)
    assert (listed["state"], listed["revoked_at"]) == ("expired", None)
    assert running.command("api.keys_cli:main", "rotate", name).returncode == 4


def test_a_key_of_the_release_before_works_on_and_is_rotated(running: Stack) -> None:
    older = "rdk_" + "A" * 43
    running.database.execute(
        "insert into redrive.api_keys (name, key_hash, scopes) values ('older', sha256($1), '{read}')",
        older.encode(),
    )
    assert status(running, older) == 200
    newer = keys(running, "rotate", "older")["key"]
    assert status(running, newer) == 200


def test_who_asks_too_often_gets_429_and_others_do_not(running: Stack) -> None:
    hasty = keys(running, "create", "hasty", "--rate", "0.1", "--burst", "3")["key"]
    calm = keys(running, "create", "calm")["key"]
    with client(running, hasty) as asking:
        answers = [asking.get("/job-types") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert answers[0].headers["ratelimit-policy"] == '"requests";q=3;w=30'
        assert answers[0].headers["ratelimit"] == '"requests";r=2;t=10'
        refused = answers[-1]
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["type"] == "urn:redrive:problem:rate-limit"
        assert int(refused.headers["retry-after"]) >= 1
        assert asking.post("/jobs", json=SUBMISSION).status_code == 429
        assert running.database.value("select count(*) from redrive.jobs") == 0
        assert status(running, calm) == 200
        assert httpx.get(f"{running.http.base_url}/healthz", timeout=30).status_code == 200
        keys(running, "limit", "hasty", "--rate", "0")
        eventually(lambda: asking.get("/job-types").status_code == 200, 10, "its limit is lifted")
        assert "ratelimit" not in asking.get("/job-types").headers


def test_ten_jobs_of_a_batch_count_as_one_request(running: Stack) -> None:
    key = keys(running, "create", "batches", "--rate", "0.001", "--burst", "10")["key"]

    def batch(start: int, count: int) -> dict[str, Any]:
        jobs = [SUBMISSION | {"idempotency_key": f"k{start + number}"} for number in range(count)]
        return {"jobs": jobs}

    with client(running, key) as asking:
        taken = asking.post("/jobs/batch", json=batch(0, 41))
        assert (taken.status_code, taken.headers["ratelimit"]) == (202, '"requests";r=5;t=5000')
        refused = asking.post("/jobs/batch", json=batch(100, 70))
        assert (refused.status_code, refused.json()["status"]) == (429, 429)
    assert running.database.value("select count(*) from redrive.jobs") == 41


def test_guesses_from_one_address_end_and_lock_nobody_out(running: Stack) -> None:
    process = running.start_api(REDRIVE_API_UNKNOWN_KEYS_PER_MIN="5")
    good, fresh = (keys(running, "create", name)["key"] for name in ("good", "fresh"))
    assert status(running, good) == 200
    with ThreadPoolExecutor(20) as threads:
        found = Counter(threads.map(lambda _: status(running, new_key()), range(20)))
    assert found == {401: 5, 429: 15}
    process.wait_for_log("too many unknown keys from 127.0.0.1")
    assert status(running, good) == 200, "who was let in before goes on"
    assert status(running, fresh) == 429
    # No key at all is no guess.
    assert httpx.get(f"{running.http.base_url}/job-types", timeout=30).status_code == 401
