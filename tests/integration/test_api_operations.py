"""What the `dlq` command does with letters, alerts and numbers, over HTTP, in the name of a key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.support.graveyard import Graveyard, order, plain
from tests.support.receiver import Receiver, receiver
from tests.support.shared import Places, Shared
from tests.support.stack import Stack
from tests.support.waiting import eventually

HUGE = 10**30


@dataclass
class Desk(Graveyard):
    """A graveyard with an API over it."""

    stack: Stack = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stack = Stack(self.vhost, self.database, self.processes, self.settings)
        self.stack.start_api()
        self.start().wait_for_log("draining mails.dlq")

    @property
    def http(self) -> httpx.Client:
        return self.stack.http

    def close(self) -> None:
        self.stack.close()

    def mails(self, count: int) -> list[int]:
        self.publish("mails.dlq", *(plain(b"x", message_id=f"m{number}") for number in range(count)))
        return [row["id"] for row in self.until_stored(count)]

    def states(self) -> list[str]:
        return [row["state"] for row in self.letters()]


def problem(answer: httpx.Response) -> tuple[int, str]:
    body: dict[str, Any] = answer.json()
    return answer.status_code, str(body["type"]).removeprefix("urn:redrive:problem:")


@pytest.fixture(scope="module")
def channel() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture(scope="module")
def shared(places: Places, channel: Receiver) -> Iterator[Shared[Desk]]:
    told = {
        "REDRIVE_ALERT_WEBHOOK_URL": f"http://127.0.0.1:{channel.port}/",
        "REDRIVE_ALERT_WEBHOOK_SECRET": "s",
    }
    with places.shared(lambda vhost, data, run: Desk(vhost, data, run, told)) as made:
        yield made


@pytest.fixture
def desk(shared: Shared[Desk], request: pytest.FixtureRequest) -> Iterator[Desk]:
    with shared.lent(request.node) as lent:
        yield lent


def test_a_letter_is_discarded_and_restored_in_the_name_of_the_key(desk: Desk) -> None:
    desk.bury("mails", plain(b"x", message_id="m"))
    (letter,) = desk.until_stored(1)
    place = f"/dead-letters/{letter['id']}"
    for wrong in ({}, {"note": " "}, {"note": "n", "by": "me"}):
        assert problem(desk.http.post(f"{place}/discard", json=wrong)) == (422, "invalid")
    answer = desk.http.post(f"{place}/discard", json={"note": "no use"})
    assert answer.status_code == 200, answer.text
    step = answer.json()["history"][-1]
    assert (answer.json()["state"], step["by"][:5], step["why"]) == ("discarded", "test-", "no use")
    assert problem(desk.http.post(f"{place}/discard", json={"note": "n"})) == (409, "not-allowed")
    answer = desk.http.post(f"{place}/restore", json={})
    assert (answer.json()["state"], answer.json()["history"][-1]["action"]) == ("open", "restore")
    assert problem(desk.http.post("/dead-letters/999/restore", json={})) == (404, "unknown-letter")


def test_letters_of_a_filter_are_discarded_as_often_as_was_seen_and_restored(desk: Desk) -> None:
    desk.mails(3)
    chosen: dict[str, Any] = {"filter": {"queue": "mails.dlq"}}
    seen = desk.http.post("/dead-letters/discard", json=chosen | {"dry_run": True, "note": "n"})
    assert seen.json() == {"letters": 3, "left_out": {}}
    desk.publish("mails.dlq", plain(b"x", message_id="late"))
    desk.until_stored(4)
    late = desk.http.post("/dead-letters/discard", json=chosen | {"expect": 3, "note": "n"})
    assert problem(late) == (409, "changed")
    assert late.json()["errors"][0]["field"] == "expect"
    assert set(desk.states()) == {"open"}

    done = desk.http.post("/dead-letters/discard", json=chosen | {"expect": 4, "note": "no use"})
    assert (done.status_code, done.json()) == (200, {"discarded": 4})
    assert set(desk.states()) == {"discarded"}
    step = desk.shown(desk.letters()[0]["id"])["history"][-1]
    assert (step["by"][:5], step["why"], step["filter"]) == ("test-", "no use", "queue=mails.dlq")
    again = desk.http.post("/dead-letters/discard", json=chosen | {"dry_run": True, "note": "n"})
    assert again.json() == {"letters": 0, "left_out": {"discarded already": 4}}
    group = {"filter": {"group": desk.letters()[0]["fingerprint"]}, "expect": 4}
    assert desk.http.post("/dead-letters/restore", json=group).json() == {"restored": 4}
    assert set(desk.states()) == {"open"}


def test_named_letters_are_decided_on_together_or_not_at_all(desk: Desk) -> None:
    first, second = desk.mails(2)
    both = {"letter_ids": [first, second], "note": "n"}
    unknown = desk.http.post("/dead-letters/discard", json=both | {"letter_ids": [first, 999]})
    assert problem(unknown) == (422, "unknown-letters")
    assert unknown.json()["errors"] == [{"field": "letter_ids", "message": "letter 999 is not on record"}]
    assert desk.http.post(f"/dead-letters/{first}/discard", json={"note": "n"}).status_code == 200
    refused = desk.http.post("/dead-letters/discard", json=both)
    assert (problem(refused), desk.states()) == ((409, "not-allowed"), ["discarded", "open"])
    assert desk.http.post("/dead-letters/restore", json={"letter_ids": [first]}).json() == {"restored": 1}
    assert desk.http.post("/dead-letters/discard", json=both).json() == {"discarded": 2}


BAD: list[tuple[str, Any, str]] = [
    ("/dead-letters/discard", {"note": "n"}, "body"),
    ("/dead-letters/discard", {"letter_ids": [1], "filter": {"queue": "q"}, "note": "n"}, "body"),
    ("/dead-letters/discard", {"letter_ids": [1], "expect": 1, "note": "n"}, "body"),
    ("/dead-letters/discard", {"filter": {"queue": "q"}, "note": "n"}, "body"),
    ("/dead-letters/discard", {"filter": {"queue": "q"}, "expect": -1, "note": "n"}, "expect"),
    ("/dead-letters/discard", {"filter": {"queue": "q\x00"}, "expect": 1, "note": "n"}, "filter.queue"),
    ("/dead-letters/discard", {"filter": {"since": "soon"}, "expect": 1, "note": "n"}, "filter.since"),
    ("/dead-letters/discard", {"filter": {"name": "q"}, "expect": 1, "note": "n"}, "filter.name"),
    ("/dead-letters/discard", {"filter": {}, "expect": 1, "note": "n"}, "filter"),
    ("/dead-letters/discard", {"letter_ids": [HUGE], "note": "n"}, "letter_ids.0"),
    ("/dead-letters/discard", {"letter_ids": ["1"], "note": "n"}, "letter_ids.0"),
    ("/dead-letters/discard", {"letter_ids": [1], "note": " "}, "note"),
    ("/dead-letters/discard", {"letter_ids": [1]}, "note"),
    ("/dead-letters/restore", {"letter_ids": []}, "letter_ids"),
    ("/dead-letters/restore", {"letter_ids": [1], "by": "me"}, "by"),
    (f"/dead-letters/{HUGE}/discard", {"note": "n"}, "letter_id"),
    ("/dead-letters/0/withdraw", {}, "letter_id"),
    ("/alerts/snooze", {"subject": "ab"}, "until"),
    ("/alerts/snooze", {"subject": "ab", "until": "2999-01-01T00:00:00"}, "until"),
    ("/alerts/snooze", {"subject": "ab", "until": "2020-01-01T00:00:00Z"}, "until"),
    ("/alerts/snooze", {"subject": "ab", "until": "9999-12-31T23:59:59-14:00"}, "until"),
    ("/alerts/snooze", {"subject": "a\x00", "until": "2999-01-01T00:00:00Z"}, "subject"),
    ("/alerts/unsnooze", {"subject": 5}, "subject"),
]


def test_a_bad_request_names_its_field_and_changes_nothing(desk: Desk) -> None:
    desk.mails(1)
    for path, body, name in BAD:
        answer = desk.http.post(path, json=body)
        assert (path, body, answer.status_code) == (path, body, 422)
        assert (path, body, answer.json()["errors"][0]["field"]) == (path, body, name)
    for path in (
        "/alerts?cursor=x",
        "/alerts?cursor=2020-01-01~a",
        "/alerts?since=9999-12-31T23:59:59-14:00",
        "/alerts?kind=no",
        "/alerts?since=soon",
    ):
        refused = desk.http.get(path)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] in path
    assert desk.http.get("/alerts/none").status_code == 422
    assert desk.http.get("/alerts/00000000-0000-0000-0000-000000000000").status_code == 404
    assert desk.http.get("/dead-letters/stats?hours=0").status_code == 422
    assert desk.states() == ["open"]
    assert desk.database.fetch("select * from redrive.alert_snoozes") == []


def test_alerts_are_paged_snoozed_and_tested(desk: Desk, channel: Receiver) -> None:
    desk.mails(1)
    desk.publish("orders.dlq", plain(b"x", message_id="o"))
    desk.until_stored(2)

    def told() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = desk.http.get("/alerts").raise_for_status().json()["alerts"]
        assert [alert["state"] for alert in found] == ["delivered", "delivered"]
        return found

    both = eventually(told, 20, "both groups have alerted")
    first = desk.http.get("/alerts", params={"limit": 1}).json()
    second = desk.http.get("/alerts", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert first["alerts"] + second["alerts"] == both
    assert second["next_cursor"] is None
    group = both[0]["group"]
    listed = desk.http.get("/alerts", params={"subject": group[:8], "kind": "first_seen"}).json()["alerts"]
    assert listed == [both[0]]
    assert desk.http.get("/alerts", params={"until": "1h"}).json()["alerts"] == []
    by_command = desk.dlq_here("alerts", "--json", "--limit", "1")
    assert json.loads(by_command.stdout)["id"] == both[0]["id"]
    more = by_command.stderr.removeprefix("more: --before ").strip()
    assert json.loads(desk.dlq_here("alerts", "--json", "--before", more).stdout)["id"] == both[1]["id"]
    assert desk.dlq_here("alerts", "--before", "x").exit_code == 2

    asked = {"subject": group[:8], "until": "2999-01-31T00:00:00+02:00", "note": "known"}
    snoozed = desk.http.post("/alerts/snooze", json=asked).raise_for_status().json()
    assert snoozed == {"subject": group, "snoozed_until": "2999-01-30T22:00:00+00:00"}
    assert desk.http.get(f"/alerts/{both[0]['id']}").json()["snoozed_until"] == snoozed["snoozed_until"]
    ended = desk.http.post("/alerts/unsnooze", json={"subject": group[:8]}).raise_for_status().json()
    assert ended == {"subject": group, "snoozed_until": None}
    rows = desk.database.fetch("select by, note from redrive.alert_snoozes order by id")
    assert [(row["by"][:5], row["note"]) for row in rows] == [("test-", "known"), ("test-", None)]
    for unknown in ("ffff", "no_consumer://none"):
        assert problem(desk.http.post("/alerts/unsnooze", json={"subject": unknown}))[0] == 404

    before = len(channel.taken)
    answer = desk.http.post("/alerts/test")
    assert answer.status_code == 202, answer.text
    place = answer.headers["location"]

    def sent() -> dict[str, Any]:
        found: dict[str, Any] = desk.http.get(place).json()
        assert found["state"] == "delivered"
        return found

    test = eventually(sent, 20, "the test is delivered")
    assert [each["channel"] for each in test["deliveries"]] == ["webhook"]
    assert json.loads(channel.taken[before].body)["kind"] == "test"
    assert test["detail"].startswith("asked for by test-")


def test_letters_are_counted(desk: Desk) -> None:
    desk.mails(2)
    found = desk.http.get("/dead-letters/stats", params={"hours": 3}).raise_for_status().json()
    by_command = json.loads(desk.dlq_here("stats", "--hours", "3", "--json").stdout)
    age = found["oldest_undecided"].pop("age_s")
    assert by_command["oldest_undecided"].pop("age_s") >= age
    assert found == by_command
    assert (found["letters"], len(found["hours"])) == (2, 3)


def test_an_edit_is_tried_made_and_withdrawn(desk: Desk) -> None:
    desk.job("j1", "DEAD", reason="exception")
    desk.bury("orders", order("j1"))
    (letter,) = desk.until_stored(1)
    place = f"/dead-letters/{letter['id']}"
    patch = [{"op": "replace", "path": "/kwargs/order", "value": "2"}]
    tried = desk.http.post(f"{place}/edit", json={"patch": patch, "dry_run": True})
    assert tried.json()["changes"] == [{"op": "replace", "path": "/kwargs/order", "value": "2"}]
    assert desk.shown(letter["id"])["edit"] is None
    assert problem(desk.http.post(f"{place}/withdraw", json={})) == (409, "not-allowed")
    assert desk.http.post(f"{place}/edit", json={"patch": patch}).json()["edit"] is not None
    withdrawn = desk.http.post(f"{place}/withdraw", json={"note": "it was right"}).json()
    assert (withdrawn["edit"], withdrawn["history"][-1]["why"]) == (None, "it was right")


def test_letters_of_numbers_that_json_lacks_are_shown_as_json(desk: Desk) -> None:
    body = b'[[NaN, 1e400], {"a": 1, "a": 2}, {}]'
    desk.bury("mails", plain(body, message_id="nan"))
    (letter,) = desk.until_stored(1)

    def strictly(answer: httpx.Response) -> Any:
        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is no JSON: {answer.text[:500]}")

        assert answer.status_code == 200, answer.text
        return json.loads(answer.text, parse_constant=refuse)

    listed = strictly(desk.http.get("/dead-letters"))
    assert [each["id"] for each in listed["letters"]] == [letter["id"]]
    assert "$float" in json.dumps(strictly(desk.http.get(f"/dead-letters/{letter['id']}")))
    assert desk.database.value("select body from redrive.dead_letters") == body
    strictly(desk.http.get(f"/groups/{letter['fingerprint']}"))


def test_who_may_only_look_changes_nothing(desk: Desk) -> None:
    (letter,) = desk.mails(1)
    desk.database.execute("update redrive.api_keys set scopes = '{read}'")
    try:
        snoozed = {"subject": "none", "until": "2999-01-01T00:00:00Z"}
        eventually(
            lambda: problem(desk.http.post("/alerts/snooze", json=snoozed)) == (403, "scope"),
            10, "the key has lost its scopes",
        )  # fmt: skip
        for path in ("/alerts", "/dead-letters/stats"):
            assert desk.http.get(path).status_code == 200
        for path in (
            "/dead-letters/discard", "/dead-letters/restore", f"/dead-letters/{letter}/withdraw",
            f"/dead-letters/{letter}/discard", f"/dead-letters/{letter}/restore",
            "/alerts/snooze", "/alerts/unsnooze", "/alerts/test",
        ):  # fmt: skip
            assert (path, problem(desk.http.post(path, json={}))) == (path, (403, "scope"))
    finally:
        desk.database.execute("update redrive.api_keys set scopes = '{submit,read,operate}'")
        eventually(
            lambda: problem(desk.http.post("/alerts/snooze", json=snoozed)) != (403, "scope"),
            10, "the key has its scopes again",
        )  # fmt: skip
    assert desk.states() == ["open"]


def test_every_command_works_while_the_api_is_down(desk: Desk) -> None:
    desk.bury("mails", plain(b"x", message_id="m"))
    (letter,) = desk.until_stored(1)
    next(process for process in desk.processes.started if process.name == "api").kill()
    with pytest.raises(httpx.HTTPError):
        desk.http.get("/healthz")
    one = str(letter["id"])
    for command in (
        ("list",), ("show", one), ("stats",), ("groups",), ("group", letter["fingerprint"]), ("alerts",),
        ("discard", one, "--note", "n"), ("restore", one), ("replay", one, "--no-wait"), ("replays",),
        ("check",), ("groups", "regroup"),
    ):  # fmt: skip
        done = desk.dlq_here(*command)
        assert (command, done.exit_code) == (command, 0), done.stderr
