"""Groups over HTTP: found, paged, shown, and decided on."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.stack import Stack


@pytest.fixture
def http(stack: Stack) -> httpx.Client:
    stack.start_api()
    stack.database.execute(
        "insert into redrive.groups (fingerprint, queue, task, reason, letters, last_seen)"
        " select lpad(to_hex(16 + n), 32, 'a'), 'q' || n % 2, 't',"
        " 'expired', 10 - n, now() - n * interval '1 s'"
        " from generate_series(0, 4) n"
    )
    return stack.http


def listed(http: httpx.Client, **query: str | int) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/groups", params=query).raise_for_status().json()
    return found


def fingerprint(number: int) -> str:
    return f"{16 + number:x}".rjust(32, "a")


def test_groups_are_paged_decided_on_and_shown(stack: Stack, http: httpx.Client) -> None:
    for sort in ("last_seen", "letters"):
        seen: list[str] = []
        cursor = None
        while not seen or cursor:
            page = listed(http, sort=sort, limit=2, **({"cursor": cursor} if cursor else {}))
            seen += [group["fingerprint"] for group in page["groups"]]
            cursor = page["next_cursor"]
        assert seen == [fingerprint(number) for number in range(5)]
    assert [group["letters"] for group in listed(http, queue="q1")["groups"]] == [9, 7]

    url = f"/groups/{fingerprint(1)}"
    answer = http.post(f"{url}/notes", json={"note": "see the log\x00"})
    assert answer.status_code == 201, answer.text
    resolved = http.post(f"{url}/resolve", json={"note": "fixed"}).raise_for_status().json()
    assert (resolved["state"], resolved["why"], resolved["decided_by"][:5]) == ("resolved", "fixed", "test-")
    until = "2999-01-31T00:00:00+02:00"
    ignored = http.post(f"{url}/ignore", json={"note": "noise", "until": until}).raise_for_status().json()
    assert ignored["ignored_until"] == "2999-01-30T22:00:00+00:00"
    assert [group["fingerprint"] for group in listed(http, state="ignored")["groups"]] == [fingerprint(1)]
    assert len(listed(http, state="open")["groups"]) == 4
    http.post(f"{url}/reopen", json={"note": "no"}).raise_for_status()
    shown = http.get(url).raise_for_status().json()
    assert [(note["action"], note["text"]) for note in shown["notes"]] == [
        ("note", "see the log\\u0000"), ("resolve", "fixed"), ("ignore", "noise"), ("reopen", "no"),
    ]  # fmt: skip
    assert (shown["state"], shown["ignored_until"], shown["example"]) == ("open", None, None)

    for path in ("/groups/ffff", "/groups/nothing"):
        assert http.get(path).status_code == 404
        assert http.post(f"{path}/resolve", json={"note": "x"}).status_code == 404
    assert http.get("/groups/aaaa").status_code == 409
    for query in (
        {"state": "gone"},
        {"cursor": "x"},
        {"cursor": "1~aa"},
        {"cursor": "9999-12-31T23:59:59-14:00~aa"},
        {"sort": "name"},
        {"limit": 0},
    ):
        refused = http.get("/groups", params=query)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, next(iter(query)))
    bad: list[tuple[str, Any, str]] = [
        ("resolve", {}, "note"),
        ("resolve", {"note": " "}, "note"),
        ("resolve", {"note": "x", "until": until}, "until"),
        ("ignore", {"note": "x", "until": "2020-01-01T00:00:00Z"}, "until"),
        ("ignore", {"note": "x", "until": "2999-01-01T00:00:00"}, "until"),
        ("ignore", {"note": "x", "until": "9999-12-31T23:59:59-14:00"}, "until"),
        ("notes", {"note": 5}, "note"),
    ]
    for action, body, field in bad:
        refused = http.post(f"{url}/{action}", json=body)
        assert (action, refused.status_code, refused.json()["errors"][0]["field"]) == (action, 422, field)


def test_a_group_whose_letters_were_regrouped_tells_where_they_are(stack: Stack, http: httpx.Client) -> None:
    old = fingerprint(0)
    stack.database.execute("update redrive.groups set letters = 0 where fingerprint = $1", old)
    stack.database.execute(
        "insert into redrive.group_states (fingerprint, successors) values ($1, $2)", old, [fingerprint(1)]
    )
    assert http.get(f"/groups/{old}").json()["successors"] == [fingerprint(1)]
    refused = http.post(f"/groups/{old}/resolve", json={"note": "x"})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:redrive:problem:moved-group")
    assert fingerprint(1) in refused.json()["detail"]
    done = stack.dlq("group", old, "resolve", "--note", "x")
    assert (done.returncode, fingerprint(1) in done.stderr) == (1, True)


def test_to_look_needs_read_and_to_decide_needs_operate(stack: Stack, http: httpx.Client) -> None:
    made = stack.command("api.keys_cli:main", "create", "reader", "--scope", "read", "--json")
    assert made.returncode == 0, made.stderr
    reader = {"Authorization": f"Bearer {json.loads(made.stdout)['key']}"}
    url = f"/groups/{fingerprint(0)}"
    assert http.get(url, headers=reader).status_code == 200
    for action in ("notes", "resolve", "ignore", "reopen"):
        assert http.post(f"{url}/{action}", json={"note": "x"}, headers=reader).status_code == 403
        assert (
            http.post(f"{url}/{action}", json={"note": "x"}, headers={"Authorization": ""}).status_code == 401
        )
