"""What operators do with letters over HTTP, in the name of their key."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.counter import Counter, problem
from tests.support.graveyard import plain
from tests.support.shared import Places, Shared


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Counter]]:
    with places.shared(Counter) as made:
        yield made


@pytest.fixture
def counter(shared: Shared[Counter], request: pytest.FixtureRequest) -> Iterator[Counter]:
    with shared.lent(request.node) as lent:
        yield lent


def test_a_letter_is_discarded_and_restored_in_the_name_of_the_key(counter: Counter) -> None:
    counter.bury("mails", plain(b"x", message_id="m"))
    (letter,) = counter.until_stored(1)
    place = f"/dead-letters/{letter['id']}"
    for wrong in ({}, {"note": " "}, {"note": "n", "by": "me"}):
        assert problem(counter.http.post(f"{place}/discard", json=wrong)) == (422, "invalid")
    answer = counter.http.post(f"{place}/discard", json={"note": "no use"})
    assert answer.status_code == 200, answer.text
    step = answer.json()["history"][-1]
    assert (answer.json()["state"], step["by"][:5], step["why"]) == ("discarded", "test-", "no use")
    assert problem(counter.http.post(f"{place}/discard", json={"note": "n"})) == (409, "not-allowed")
    answer = counter.http.post(f"{place}/restore", json={})
    assert (answer.json()["state"], answer.json()["history"][-1]["action"]) == ("open", "restore")
    assert problem(counter.http.post("/dead-letters/999/restore", json={})) == (404, "unknown-letter")


def test_who_may_only_look_decides_nothing(counter: Counter) -> None:
    counter.bury("mails", plain(b"x", message_id="m"))
    (letter,) = counter.until_stored(1)
    counter.database.execute("update redrive.api_keys set scopes = '{read}'")
    try:
        for action in ("discard", "restore"):
            answer = counter.http.post(f"/dead-letters/{letter['id']}/{action}", json={"note": "n"})
            assert problem(answer) == (403, "scope")
    finally:
        counter.database.execute("update redrive.api_keys set scopes = '{submit,read,operate}'")
    assert counter.letters()[0]["state"] == "open"


def test_every_command_works_while_the_api_is_down(counter: Counter) -> None:
    counter.bury("mails", plain(b"x", message_id="m"))
    (letter,) = counter.until_stored(1)
    next(process for process in counter.processes.started if process.name == "api").kill()
    with pytest.raises(httpx.HTTPError):
        counter.http.get("/healthz")
    one = str(letter["id"])
    for command in (
        ("list",), ("show", one), ("stats",), ("groups",), ("group", letter["fingerprint"]), ("alerts",),
        ("discard", one, "--note", "n"), ("restore", one), ("replay", one, "--no-wait"), ("replays",),
        ("check",), ("groups", "regroup"),
    ):  # fmt: skip
        done = counter.dlq(*command)
        assert (command, done.returncode) == (command, 0), done.stderr
