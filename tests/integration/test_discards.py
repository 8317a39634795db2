"""Letters that an operator decides not to send again, and takes back: by command, beside a running drain."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.graveyard import Graveyard, order, plain, shared_graveyard
from tests.support.shared import Places, Shared
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Graveyard]]:
    with shared_graveyard(places, Graveyard) as made:
        yield made


@pytest.fixture
def graveyard(shared: Shared[Graveyard], request: pytest.FixtureRequest) -> Iterator[Graveyard]:
    with shared.lent(request.node) as lent:
        yield lent


def mails(graveyard: Graveyard, count: int) -> list[int]:
    graveyard.publish("mails.dlq", *(plain(b"x", message_id=f"m{number}") for number in range(count)))
    return [row["id"] for row in graveyard.until_stored(count)]


def test_a_discarded_letter_has_its_reason_on_record_and_comes_back_as_it_was(graveyard: Graveyard) -> None:
    graveyard.job("j1", "DEAD", reason="exception")
    graveyard.bury("orders", order("j1"))
    (letter,) = graveyard.until_stored(1)
    done = graveyard.dlq_here("discard", str(letter["id"]), "--note", "a test\x00", "--by", "ada", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"discarded": 1})
    shown = graveyard.shown(letter["id"])
    assert (shown["state"], shown["job"]["state"]) == ("discarded", "DEAD")
    (step,) = shown["history"]
    assert {name: step[name] for name in ("action", "by", "why", "was")} == {
        "action": "discard", "by": "ada", "why": "a test\\u0000", "was": "open",
    }  # fmt: skip
    assert graveyard.listed("--undecided") == []
    again = graveyard.dlq_here("discard", str(letter["id"]), "--note", "twice")
    assert (again.exit_code, "is discarded already" in again.stderr) == (4, True)
    assert graveyard.dlq_here("replay", str(letter["id"]), "--no-wait").exit_code == 1
    assert graveyard.dlq_here("restore", str(letter["id"]), "--by", "bob").exit_code == 0
    shown = graveyard.shown(letter["id"])
    assert (shown["state"], shown["properties"], shown["body_sha256"]) == (
        "open", shown["properties"], letter["body_sha256"].hex(),
    )  # fmt: skip
    assert [(one["action"], one["by"]) for one in shown["history"]] == [
        ("discard", "ada"),
        ("restore", "bob"),
    ]
    refused = graveyard.dlq_here("restore", str(letter["id"]))
    assert (refused.exit_code, "is open and not discarded" in refused.stderr) == (4, True)


def test_of_letters_by_id_all_are_discarded_or_none(graveyard: Graveyard) -> None:
    first, second = map(str, mails(graveyard, 2))
    assert graveyard.dlq_here("discard", first, second, "999", "--yes", "--note", "n").exit_code == 1
    graveyard.dlq_here("discard", second, "--note", "n")
    assert graveyard.dlq_here("discard", first, second, "--yes", "--note", "n").exit_code == 4
    assert [row["state"] for row in graveyard.letters()] == ["open", "discarded"]


def test_more_than_one_letter_is_asked_about(graveyard: Graveyard) -> None:
    ids = [str(id_) for id_ in mails(graveyard, 3)]
    for chosen in (ids, ["--queue", "mails"]):
        asked = graveyard.dlq_here("discard", *chosen, "--note", "n")
        assert (asked.exit_code, "discard 3 letters" in asked.stderr) == (1, True)
    assert {row["state"] for row in graveyard.letters()} == {"open"}
    for wrong in ([], [ids[0], "--queue", "mails"], [ids[0], "--dry-run"]):
        assert graveyard.dlq_here("discard", *wrong, "--note", "n").exit_code == 2
    assert graveyard.dlq_here("discard", ids[0], "--note", " ").exit_code == 2
    assert graveyard.dlq_here("discard", ids[0]).exit_code == 2


def test_a_filter_takes_what_it_found_and_leaves_out_what_cannot_be(graveyard: Graveyard) -> None:
    ids = mails(graveyard, 4)
    graveyard.bury("orders", order("j1"))
    graveyard.until_stored(5)
    graveyard.dlq_here("discard", str(ids[0]), "--note", "before")
    assert graveyard.dlq_here("replay", str(ids[1])).exit_code == 0
    told = graveyard.dlq_here("discard", "--queue", "mails.dlq", "--note", "n", "--dry-run", "--json")
    assert json.loads(told.stdout) == {"would_discard": 2}
    assert "left out: 1 discarded already" in told.stderr
    assert "left out: 1 being replayed" in told.stderr
    done = graveyard.dlq_here("discard", "--queue", "mails.dlq", "--note", "n", "--yes", "--json")
    assert json.loads(done.stdout) == {"discarded": 2}
    assert [row["state"] for row in graveyard.letters()] == [
        "discarded", "replayed", "discarded", "discarded", "open",
    ]  # fmt: skip
    assert graveyard.shown(ids[3])["history"][0]["filter"] == "queue=mails.dlq"


def test_a_letter_is_not_discarded_while_its_replay_is_not_over(graveyard: Graveyard) -> None:
    graveyard.bury("mails", plain(b"x", message_id="m"))
    (letter,) = graveyard.until_stored(1)
    assert graveyard.dlq_here("replay", str(letter["id"])).exit_code == 0
    refused = graveyard.dlq_here("discard", str(letter["id"]), "--note", "n")
    assert (refused.exit_code, "which is not over" in refused.stderr) == (4, True)
    # Its outcome is given up: now somebody may decide.
    graveyard.database.execute("update redrive.replay_items set outcome = 'unknown', decided_at = now()")
    assert graveyard.dlq_here("discard", str(letter["id"]), "--note", "it was eaten").exit_code == 0
    assert graveyard.dlq_here("restore", str(letter["id"])).exit_code == 0
    assert graveyard.letters()[0]["state"] == "replayed"
    graveyard.database.execute("update redrive.replay_items set outcome = 'consumed'")
    known = graveyard.dlq_here("discard", str(letter["id"]), "--note", "n")
    assert (known.exit_code, "its outcome is known" in known.stderr) == (4, True)


def test_copies_of_a_letter_go_with_it(graveyard: Graveyard) -> None:
    graveyard.job("j1", "DEAD", reason="exception")
    graveyard.bury("orders", order("j1"))
    (first,) = graveyard.until_stored(1)
    graveyard.dlq_here("discard", str(first["id"]), "--note", "n")
    graveyard.bury("orders", order("j1"))
    _, copy = graveyard.until_stored(2)
    assert (copy["duplicate_of"], copy["state"]) == (first["id"], "discarded")
    assert graveyard.dlq_here("restore", str(copy["id"])).exit_code == 4
    assert graveyard.dlq_here("restore", str(first["id"])).exit_code == 0
    eventually(lambda: {row["state"] for row in graveyard.letters()} == {"open"}, 5, "both are open")
    assert graveyard.dlq_here("discard", str(copy["id"]), "--note", "n").exit_code == 4
