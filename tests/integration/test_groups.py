"""Groups as operators use them: found, told about, resolved, ignored; and what a new letter makes of that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.graveyard import Graveyard, order, plain, shared_graveyard
from tests.support.shared import Places, Shared

TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/shop/orders.py", line 12, in place
    check(order)
ValueError: no"""


class Yard(Graveyard):
    def listed_groups(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.dlq_here("groups", "--json", *arguments)
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    def alerts(self) -> list[str]:
        rows = self.database.fetch("select kind from redrive.alerts order by created_at")
        return [row["kind"] for row in rows]

    def mail(self, *numbers: int) -> None:
        self.publish("mails.dlq", *(plain(b"x", message_id=f"m{number}") for number in numbers))


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Yard]]:
    with shared_graveyard(places, Yard) as made:
        yield made


@pytest.fixture
def yard(shared: Shared[Yard], request: pytest.FixtureRequest) -> Iterator[Yard]:
    with shared.lent(request.node) as made:
        yield made


def test_groups_are_listed_by_filter_and_shown_with_an_example(yard: Yard) -> None:
    yard.failed_job("job-1", TRACEBACK)
    yard.bury("orders", order("job-1"))
    yard.mail(1, 2, 3)
    letters = yard.until_stored(4)

    both = yard.listed_groups("--sort", "letters")
    assert [(group["queue"], group["letters"], group["counts"]["open"]) for group in both] == [
        ("mails", 3, 3),
        ("orders", 1, 1),
    ]
    for wanted in (
        ("--queue", "orders"), ("--task", "orders.place"), ("--reason", "exception"), ("--limit", "1"),
    ):  # fmt: skip
        found = yard.listed_groups("--sort", "last_seen", *wanted)
        assert len(found) == 1
    first = yard.dlq_here("groups", "--sort", "letters", "--limit", "1", "--json")
    more = first.stderr.removeprefix("more: --after ").strip()
    (last,) = yard.listed_groups("--sort", "letters", "--after", more)
    assert last["queue"] == "orders"
    assert yard.dlq_here("groups", "--after", more).exit_code == 2  # of another order
    assert yard.listed_groups("--state", "resolved") == []
    assert len(yard.listed_groups("--state", "open")) == 2

    (group,) = yard.listed_groups("--queue", "orders")
    shown = yard.group(group["fingerprint"][:8])
    assert shown["fingerprint"] == group["fingerprint"]
    assert (shown["exception_type"], shown["top_frame"]) == ("ValueError", "shop/orders.py:place")
    assert shown["dead_letter_queues"] == {"orders.dlq": 1}
    assert [hour["letters"] for hour in shown["hours"]] == [1]
    assert shown["example"]["id"] == next(row["id"] for row in letters if row["queue"] == "orders")
    assert shown["example"]["attempts"][0]["traceback"] == TRACEBACK
    table = yard.dlq_here("groups").stdout.splitlines()
    assert table[0].split()[:5] == ["GROUP", "STATE", "LETTERS", "OPEN", "REPLAYING"]
    assert len(table) == 3
    assert "shop/orders.py:place" in yard.dlq_here("group", group["fingerprint"]).stdout


def test_a_group_is_a_filter_by_what_the_list_shows_of_it(yard: Yard) -> None:
    yard.mail(1)
    yard.publish("orders.dlq", plain(b"x", message_id="other"))
    yard.until_stored(2)
    shown = [line.split()[0] for line in yard.dlq_here("groups", "--queue", "mails").stdout.splitlines()][1]
    assert len(shown) < 32
    assert [letter["message_id"] for letter in yard.listed("--group", shown)] == ["m1"]
    counted = json.loads(yard.dlq_here("replay", "--group", shown, "--dry-run", "--json").stdout)
    assert counted["to_send"] == 1
    done = yard.dlq_here("discard", "--group", shown, "--note", "a test", "--json")
    assert json.loads(done.stdout) == {"discarded": 1}
    (whole,) = {letter["group"] for letter in yard.listed("--group", shown)}
    assert yard.dlq_here("group", shown, "note", "--note", "n").exit_code == 0
    assert yard.dlq_here("alerts", "snooze", shown, "--for", "1h").exit_code == 0
    audited = yard.database.fetch("select operation, targets from redrive.audit order by id")
    changing = ("dlq discard", "dlq group", "dlq alerts snooze")
    assert [tuple(row.values()) for row in audited] == [(name, [whole]) for name in changing]
    for none in ("0" * 12, "mails"):
        refused = yard.dlq_here("discard", "--group", none, "--note", "n", "--yes")
        assert (refused.exit_code, "See: dlq groups" in refused.stderr) == (1, True)
    assert yard.listed("--group", "0" * 32) == []  # nothing of it has died yet


def test_a_new_letter_reopens_a_resolved_group_and_alerts(yard: Yard) -> None:
    yard.mail(1)
    yard.until_stored(1)
    (group,) = yard.listed_groups()
    done = yard.group(group["fingerprint"], "resolve", "--note", "fixed in 2", "--by", "ann")
    assert (done["state"], done["decided_by"], done["why"]) == ("resolved", "ann", "fixed in 2")
    assert yard.alerts() == ["first_seen"]

    yard.mail(2, 3)
    yard.until_stored(3)
    (after,) = yard.listed_groups()
    assert (after["state"], after["regressions"], after["letters"]) == ("open", 1, 3)
    assert after["regressed_at"] is not None
    # The watch may have looked while it was resolved.
    assert yard.alerts() in (["first_seen", "regression"], ["first_seen", "resolved", "regression"])
    notes = yard.group(group["fingerprint"])["notes"]
    assert [(note["action"], note["by"]) for note in notes] == [
        ("resolve", "ann"),
        ("regression", "dlq consume"),
    ]


def test_an_ignored_group_counts_and_never_alerts_until_its_time_is_over(yard: Yard) -> None:
    yard.mail(1)
    yard.until_stored(1)
    (group,) = yard.listed_groups()
    print_ = group["fingerprint"]
    assert yard.group(print_, "ignore", "--note", "noise", "--for", "3d")["ignored_until"] is not None
    # Also not after a silence.
    yard.database.execute("update redrive.groups set last_seen = now() - interval '2 days'")
    yard.mail(2)
    yard.until_stored(2)
    (ignored,) = yard.listed_groups("--state", "ignored")
    assert (ignored["letters"], ignored["regressions"]) == (2, 0)
    assert yard.alerts() == ["first_seen"]

    yard.database.execute("update redrive.group_states set ignored_until = now() - interval '1 s'")
    assert len(yard.listed_groups("--state", "open")) == 1
    yard.mail(3)
    yard.until_stored(3)
    assert yard.group(print_)["state"] == "open"
    assert yard.alerts() == ["first_seen", "regression"]

    yard.group(print_, "ignore", "--note", "for good")
    assert yard.group(print_, "reopen", "--note", "after all")["state"] == "open"
    yard.group(print_, "note", "--note", "a\x1b[31m note")
    printed = yard.dlq_here("group", print_).stdout
    assert "\x1b" not in printed
    assert "reopen by" in printed


def test_wrong_usage_of_groups_is_told(yard: Yard) -> None:
    for number in range(2):
        yard.database.execute(
            "insert into redrive.groups (fingerprint, queue, reason, letters) values ($1, 'q', 'foreign', 1)",
            f"ab{number:030x}",
        )
    for arguments, code, words in [
        (("group", "ab"), 2, "may be"),
        (("group", "cd"), 1, "no group cd"),
        (("group", "xyz"), 1, "no fingerprint"),
        (("group", "ab", "resolve"), 2, "--note"),
        (("group", "ab", "resolve", "--note", "x", "--for", "2h"), 2, "--for goes with ignore"),
        (("group", "ab", "ignore", "--note", "x", "--for", "soon"), 2, "length of time"),
        (("group", "ab", "--by", "me"), 2, "go with an ACTION"),
    ]:
        done = yard.dlq_here(*arguments)
        assert (arguments, done.exit_code, words in done.output) == (arguments, code, True)
    assert yard.database.fetch("select * from redrive.group_states") == []
