"""What operators do with letters over HTTP, in the name of their key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.support.graveyard import Graveyard, plain
from tests.support.shared import Places, Shared
from tests.support.stack import Stack


@dataclass
class Counter(Graveyard):
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


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Counter]]:
    with places.shared(Counter) as made:
        yield made


@pytest.fixture
def counter(shared: Shared[Counter], request: pytest.FixtureRequest) -> Iterator[Counter]:
    with shared.lent(request.node) as lent:
        yield lent


def problem(answer: httpx.Response) -> tuple[int, str]:
    body: dict[str, Any] = answer.json()
    return answer.status_code, str(body["type"]).removeprefix("urn:redrive:problem:")


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
