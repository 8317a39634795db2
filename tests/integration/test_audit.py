"""Who changed what is on record before it begins: over a real API process, commands and Postgres."""

from __future__ import annotations

import json
import os
import pwd
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import asyncpg
import httpx
import pytest

from tests.integration.test_api_surroundings import SCOPES
from tests.support import letter_rows
from tests.support.dlq_here import dlq_here
from tests.support.stack import Stack
from tests.support.waiting import eventually

CHARGE = {"order_id": "o", "amount_cents": 5, "currency": "EUR"}
SUBMISSION = {"type": "payments.charge_order", "payload": CHARGE}
SUBMITTING = ("/jobs", "/jobs/batch")


def audit(stack: Stack, **wanted: Any) -> list[dict[str, Any]]:
    """Oldest first."""
    answer = stack.http.get("/audit", params=wanted).raise_for_status().json()
    found: list[dict[str, Any]] = answer["entries"]
    return found[::-1]


def test_each_call_that_may_change_something_is_on_record(running: Stack) -> None:
    changing = [route for route in SCOPES if route[0] != "GET"]
    assert len(changing) > 15
    for method, path in changing:
        if path in SUBMITTING:
            continue
        answer = running.http.request(method, path.replace("{", "").replace("}", ""), json={"note": "why"})
        (entry,) = audit(running, operation=f"{method} {path}", submissions=False)[-1:]
        assert entry["by"].startswith("test-"), entry
        assert entry["operation"] == f"{method} {path}"
        assert (entry["status"], entry["came_from"]) == (answer.status_code, "127.0.0.1")
        assert entry["ended_at"]
        key = running.http.headers["Authorization"].removeprefix("Bearer ")
        assert key.startswith(f"rdk_{entry['key_id']}_")
    assert audit(running, target="job_id")[0]["details"] == {"note": "why"}
    count = running.database.value("select count(*) from redrive.audit")
    for path in ("/jobs", "/queues", "/dead-letters", "/audit"):
        assert running.http.get(path).status_code == 200
    assert running.http.delete("/jobs").status_code == 405
    assert running.http.post("/replays", headers={"Authorization": "Bearer x"}).status_code == 401
    assert running.database.value("select count(*) from redrive.audit") == count


def test_a_submission_is_on_record_with_the_jobs_that_it_made(running: Stack) -> None:
    job = running.submit("payments.charge_order", CHARGE, "k1")
    assert running.submit("payments.charge_order", CHARGE, "k1") == job
    delayed = SUBMISSION | {"idempotency_key": "k2", "delay_s": 60}
    later = running.http.post("/jobs", json=delayed).json()["id"]
    bad = SUBMISSION | {"idempotency_key": "k3", "type": "none"}
    jobs = [SUBMISSION | {"idempotency_key": f"b{number}"} for number in range(3)]
    for _ in range(2):
        answer = running.http.post("/jobs/batch", json={"jobs": [*jobs, bad]})
    made = [each["id"] for each in answer.json()["results"] if each["status"] == 202]
    found = audit(running)
    assert [(entry["operation"], sorted(entry["targets"])) for entry in found] == [
        ("POST /jobs", [job]), ("POST /jobs", [later]), ("POST /jobs/batch", sorted(made)),
    ]  # fmt: skip
    assert {(entry["status"], entry["came_from"], entry["by"][:5]) for entry in found} == {
        (202, "127.0.0.1", "test-")
    }
    assert [entry["id"] for entry in audit(running, target=made[1])] == [found[2]["id"]]
    assert audit(running, submissions=False) == []


def test_pages_follow_each_other_and_the_command_shows_the_same(running: Stack) -> None:
    for number in range(5):
        running.submit("payments.charge_order", CHARGE, f"k{number}")
    seen: list[dict[str, Any]] = []
    cursor: dict[str, int] = {}
    while True:
        page = running.http.get("/audit", params={"limit": 2} | cursor).json()
        seen += page["entries"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len({entry["id"] for entry in seen}) == len(seen) == 5
    by_command = running.dlq("audit", "--json")
    assert [json.loads(line) for line in by_command.stdout.splitlines()] == seen
    told = running.dlq("audit", "--limit", "1", "--by", seen[0]["by"])
    assert (told.returncode, "POST /jobs" in told.stdout) == (0, True)
    assert f"--before {seen[0]['id']}" in told.stderr


def test_what_cannot_be_put_on_record_is_not_done(running: Stack) -> None:
    job = running.submit("payments.charge_order", CHARGE, "k1")
    running.database.execute("alter table redrive.audit add constraint broken check (false) not valid")
    try:
        again = {"idempotency_key": "k2"}
        for path, body in (
            (f"/jobs/{job}/cancel", {}),
            ("/jobs", SUBMISSION | again),
            ("/jobs/batch", {"jobs": [SUBMISSION | again]}),
        ):
            # Each by a connection of its own: after a fault the server closes it.
            url, headers = f"{running.http.base_url}{path}", dict(running.http.headers)
            assert httpx.post(url, json=body, headers=headers, timeout=30).status_code == 500
        done = running.dlq("discard", "1", "--note", "n")
        assert done.returncode != 0
    finally:
        running.database.execute("alter table redrive.audit drop constraint broken")
    assert running.job(job)["state"] != "CANCELLED"
    assert running.database.value("select count(*) from redrive.jobs") == 1
    assert running.http.post("/jobs", json=SUBMISSION | again).status_code == 202


def test_a_call_whose_process_is_killed_stays_on_record_without_an_outcome(running: Stack) -> None:
    letter_rows.prepare(running.database)
    letter_rows.store(running.database)
    (letter,) = running.database.fetch("select id from redrive.dead_letters")
    process = running.start_api()
    path = f"/dead-letters/{letter['id']}/discard"
    rows = "select count(*) from redrive.audit where details is not null and status is null"
    lock = "lock table redrive.dead_letters in access exclusive mode"
    with running.database.locked(lock), ThreadPoolExecutor(1) as thread:
        asked = thread.submit(running.http.post, path, json={"note": "no use"})
        eventually(lambda: running.database.value(rows) == 1, 30, "the call is on record")
        process.kill()
        assert isinstance(asked.exception(30), httpx.HTTPError)
    running.start_api()
    (entry,) = audit(running, target=str(letter["id"]))
    assert (entry["status"], entry["ended_at"], entry["details"]) == (None, None, {"note": "no use"})
    assert running.database.value("select state from redrive.dead_letters") == "open"


def test_what_is_on_record_is_not_changed(running: Stack) -> None:
    running.submit("payments.charge_order", CHARGE, "k1")
    for change in ("by = 'nobody'", "status = 500", "targets = '{}'", "at = now() - interval '1 day'"):
        with pytest.raises(asyncpg.RaiseError, match="is not changed"):
            running.database.execute(f"update redrive.audit set {change}")


def test_the_values_of_a_patch_are_not_kept(running: Stack) -> None:
    letter_rows.prepare(running.database)
    letter_rows.store(running.database)
    patch = [{"op": "replace", "path": "/kwargs/card", "value": "4111-secret"}]
    running.http.post("/dead-letters/1/edit", json={"patch": patch, "note": "n"})
    (entry,) = audit(running, target="1")
    assert entry["details"] == {"note": "n", "patch": [{"op": "replace", "path": "/kwargs/card"}]}
    running.dlq("edit", "1", "--patch", json.dumps(patch))
    assert "secret" not in str(running.database.fetch("select * from redrive.audit"))


GROUP = "abcdef0123456789abcdef0123456789"
COMMANDS = (
    ("discard", "1", "2", "--note", "n", "--yes"),
    ("restore", "1", "2", "--yes"),
    ("edit", "1", "--withdraw"),
    ("group", GROUP, "note", "--note", "n"),
    ("alerts", "snooze", GROUP, "--for", "1h"),
    ("alerts", "unsnooze", GROUP),
    ("replay", "1", "--yes", "--no-wait"),
    ("pause", "6f0e0000-0000-0000-0000-000000000000"),
    ("resume", "6f0e0000-0000-0000-0000-000000000000", "--yes"),
    ("cancel", "6f0e0000-0000-0000-0000-000000000000", "--yes"),
    ("groups", "regroup", "--yes"),
)


def test_commands_are_on_record_with_the_user_and_host(running: Stack) -> None:
    letter_rows.prepare(running.database)
    letter_rows.store(running.database, 2)
    running.database.execute(
        "insert into redrive.groups (fingerprint, queue, reason) values ($1, 'q', 'foreign')", GROUP
    )
    here = partial(dlq_here, running.settings, running.processes.directory)
    codes = [here(*command, "--by", "somebody").exit_code for command in COMMANDS]
    for reading in (("list",), ("show", "1"), ("group", GROUP), ("alerts",), ("stats",)):
        assert here(*reading).exit_code == 0
    found = audit(running)
    assert [entry["operation"].split()[1] for entry in found] == [command[0] for command in COMMANDS]
    assert [entry["status"] for entry in found] == codes
    assert codes[:4] == [0, 0, 4, 0]
    me = f"{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"
    assert {(entry["by"], entry["came_from"], entry["key_id"]) for entry in found} == {
        (me, socket.gethostname(), None)
    }
    assert found[0]["targets"] == ["1", "2"]
    assert found[0]["details"] == {"note": "n", "by": "somebody"}
    assert found[4]["operation"] == "dlq alerts snooze"

    name = "audited"
    for command in (("create", name, "--scope", "read"), ("rotate", name), ("limit", name), ("revoke", name)):
        assert running.command("api.keys_cli:main", *command).returncode == 0
    assert running.command("api.keys_cli:main", "rotate", name).returncode == 4
    found = audit(running, target=name)
    assert [(entry["operation"], entry["status"]) for entry in found] == [
        ("api-keys create", 0), ("api-keys rotate", 0), ("api-keys limit", 0), ("api-keys revoke", 0),
        ("api-keys rotate", 4),
    ]  # fmt: skip
    assert {entry["by"] for entry in found} == {me}


def test_only_a_trusted_proxy_says_from_where(running: Stack) -> None:
    told = {"X-Forwarded-For": "198.51.100.7, 203.0.113.9"}

    def came_from(key: str) -> str:
        answer = running.http.post("/jobs", json=SUBMISSION | {"idempotency_key": key}, headers=told)
        (entry,) = audit(running, target=answer.json()["id"])
        return str(entry["came_from"])

    # The nearest address that is no trusted proxy's: what stands before it may be made up by the client.
    assert came_from("k1") == "203.0.113.9"
    running.start_api(FORWARDED_ALLOW_IPS="10.9.9.9")
    assert came_from("k2") == "127.0.0.1"


def test_old_rows_go_when_that_is_asked_for(running: Stack) -> None:
    running.database.execute(
        "insert into redrive.audit (at, by, operation) values (now() - interval '40 days', 'a', 'old'),"
        " (now(), 'a', 'new')"
    )
    running.start_api(REDRIVE_API_AUDIT_RETENTION_DAYS="30")
    rows = "select string_agg(operation, ' ') from redrive.audit where by = 'a'"
    eventually(lambda: running.database.value(rows) == "new", 30, "the old row is gone")
