"""Letters that an older rule grouped go to the groups of this one: beside a drain, also after a kill."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from dlq_consumer.fingerprint import group_of
from tests.support.graveyard import DLQ, Graveyard, order, plain, shared_graveyard
from tests.support.processes import console_script
from tests.support.shared import Places, Shared
from tests.support.waiting import eventually

TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/shop/orders.py", line 12, in {}
    check(order)
ValueError: no"""
OLD = [f"{number:032x}" for number in range(3)]
# As rule 1 had it: an exception's name with an address in it made a group each.
ROWS = (
    "insert into redrive.dead_letters (session_id, dlq, queue, reason, properties, body, exchange,"
    " routing_key, body_sha256, body_size, identity, has_identity, exception_type, fingerprint)"
    " select (select max(id) from redrive.drain_sessions), 'orders.dlq', queue, reason, '', 'x', '', '', '',"
    " 1, int8send(n), false, exception_type, fingerprint"
    " from redrive.groups, generate_series(1::bigint, $1) as n where fingerprint = $2"
)


class Yard(Graveyard):
    def group_as_before(self, letters: dict[int, str], **columns: Any) -> None:
        """What an older rule left of letters (id) that are on record."""
        frames = {"top_frame": None, "exception_type": None} | columns
        for print_ in sorted(set(letters.values())):
            self.make_old_group(print_, frames["exception_type"], frames["top_frame"])
        for id_, print_ in letters.items():
            self.database.execute(
                "update redrive.dead_letters set fingerprint = $2 where $1 in (id, duplicate_of)", id_, print_
            )
            self.database.execute(
                "update redrive.groups set letters = letters + 1 where fingerprint = $1", print_
            )
        self.database.execute("delete from redrive.alerts")
        self.database.execute(
            "delete from redrive.groups where fingerprint <> all($1)", list(letters.values())
        )

    def make_old_group(
        self, print_: str, exception: str | None, frame: str | None, *, like: str | None = None
    ) -> None:
        """`like`: a letter of this group has its queue and reason."""
        found = self.database.fetch("select * from redrive.groups where fingerprint = $1", like)
        queue, reason = (found[0]["queue"], found[0]["reason"]) if found else ("orders", "exception")
        self.database.execute(
            "insert into redrive.groups (fingerprint, queue, reason, exception_type, top_frame)"
            " values ($1, $2, $3, $4, $5)",
            print_, queue, reason, exception, frame,
        )  # fmt: skip

    def many(self, print_: str, count: int) -> None:
        """Letters of an old group."""
        self.database.execute(ROWS, count, print_)
        self.database.execute("update redrive.groups set letters = $2 where fingerprint = $1", print_, count)

    def regroup(self, *arguments: str) -> dict[str, dict[str, int]]:
        done = self.dlq_here("groups", "regroup", "--yes", "--json", *arguments)
        assert done.exit_code == 0, done.output
        told = [json.loads(line) for line in done.stdout.splitlines()]
        return {each["group"]: each["moved"] for each in told}

    def told(self) -> list[str]:
        """Kinds of alerts, but for what is well again."""
        rows = self.database.fetch("select kind from redrive.alerts where kind <> 'resolved'")
        return [row["kind"] for row in rows]

    def state(self, query: str) -> Any:
        return self.database.fetch(query)

    def check_sums(self) -> None:
        """What groups count is what lies there, in total, by state and by hour."""
        there = Counter(row["fingerprint"] for row in self.letters() if row["duplicate_of"] is None)
        for column, table in (("letters", "groups"), ("letters", "group_counts"), ("letters", "group_hours")):
            rows = self.database.fetch(
                f"select fingerprint, sum({column})::int as n from redrive.{table} group by 1"
            )
            assert {row["fingerprint"]: row["n"] for row in rows if row["n"]} == there, table


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Yard]]:
    with shared_graveyard(places, Yard) as made:
        yield made


@pytest.fixture
def yard(shared: Shared[Yard], request: pytest.FixtureRequest) -> Iterator[Yard]:
    with shared.lent(request.node) as made:
        yield made


def drained(yard: Yard) -> tuple[list[int], str, str]:
    """Two letters of a group (one with a copy), one of another: ids, and the fingerprints they have."""
    for number, function in enumerate(("place", "place", "ship")):
        yard.failed_job(f"job-{number}", TRACEBACK.format(function))
        yard.bury("orders", order(f"job-{number}"))
        yard.until_stored(number + 1)
    yard.bury("orders", order("job-0"))
    rows = yard.until_stored(4)
    assert [row["duplicate_of"] for row in rows] == [None, None, None, rows[0]["id"]]
    assert rows[0]["fingerprint"] == rows[1]["fingerprint"] != rows[2]["fingerprint"]
    return [row["id"] for row in rows], rows[0]["fingerprint"], rows[2]["fingerprint"]


def test_one_group_becomes_two_and_two_become_one_with_all_that_was_decided(yard: Yard) -> None:
    (first, second, third, copy), place, ship = drained(yard)
    yard.group_as_before({first: OLD[0], third: OLD[0], second: OLD[1]})
    yard.dlq_here("group", OLD[0], "ignore", "--note", "known", "--by", "ada", "--for", "3d")
    yard.dlq_here("group", OLD[1], "resolve", "--note", "fixed", "--by", "bob")
    yard.dlq_here("alerts", "snooze", OLD[0], "--for", "2h", "--by", "ada")
    yard.database.execute("update redrive.alert_subjects set alerted_at = now(), last_letter = now()")
    before = yard.state("select * from redrive.groups order by 1")

    assert yard.regroup("--dry-run") == {OLD[0]: {place: 1, ship: 1}, OLD[1]: {place: 1}}
    assert yard.state("select * from redrive.groups order by 1") == before
    check = yard.dlq_here("check")
    assert "groups: OK (2 of 2 by an older rule. Run: dlq groups regroup)" in check.output, check.output
    asked = yard.dlq_here("groups", "regroup")
    assert (asked.exit_code, "look at 3 letters of 2 groups" in asked.stderr) == (1, True)

    assert yard.regroup("--by", "cleo") == {OLD[0]: {place: 1, ship: 1}, OLD[1]: {place: 1}}
    now = {row["id"]: row["fingerprint"] for row in yard.letters()}
    assert now == {first: place, second: place, third: ship, copy: place}
    yard.check_sums()
    both, one = yard.group(place), yard.group(ship)
    rows = {row["id"]: row["stored_at"].isoformat() for row in yard.letters()}
    assert (both["first_seen"], both["last_seen"]) == (rows[first], rows[second])
    assert (both["top_frame"], both["exception_type"], both["rule"]) == (
        "shop/orders.py:place",
        "ValueError",
        2,
    )
    # Of two what hides less; of one all of it.
    assert (both["state"], both["decided_by"], both["why"]) == ("resolved", "bob", "fixed")
    assert (one["state"], one["decided_by"]) == ("ignored", "ada")
    assert one["ignored_until"] is not None
    assert [(note["action"], note["by"]) for note in both["notes"]] == [
        ("ignore", "ada"), ("resolve", "bob"), ("note", "cleo"), ("note", "cleo"),
    ]  # fmt: skip
    old = yard.group(OLD[0])
    assert (old["letters"], set(old["successors"]), old["example"]) == (0, {place, ship}, None)
    assert old["notes"][-1]["text"] == f"regrouped by rule 2: letters went to {', '.join(old['successors'])}"
    listed = yard.dlq_here("groups", "--json").stdout.splitlines()
    assert {json.loads(line)["fingerprint"] for line in listed} == {place, ship}
    snoozed = yard.state("select subject from redrive.alert_subjects where snoozed_until > now() order by 1")
    assert {row["subject"] for row in snoozed} == {OLD[0], ship, place}

    assert yard.regroup() == {}
    assert yard.regroup("--all") == {print_: {} for print_ in sorted((*OLD[:2], place, ship))}
    assert "groups: OK (2, by rule 2)" in yard.dlq_here("check").output
    yard.check_sums()
    assert yard.told() == []
    # The next letter is one of a known group, which was resolved.
    yard.failed_job("job-9", TRACEBACK.format("place"))
    yard.bury("orders", order("job-9"))
    yard.until_stored(5)
    assert yard.told() == ["regression"]


def test_killed_in_the_middle_beside_a_drain_it_is_run_again(yard: Yard) -> None:
    """The drain, into the same group, goes on while the command waits for a letter that somebody holds."""
    yard.publish("orders.dlq", plain(b"x", message_id="m"))
    heir = yard.until_stored(1)[0]["fingerprint"]
    for print_, count in ((OLD[0], 1_200), (OLD[1], 700)):
        yard.make_old_group(print_, None, None, like=heir)
        yard.many(print_, count)
    yard.make_old_group(OLD[2], "Other", "shop/orders.py:place")
    yard.many(OLD[2], 3)
    other = group_of(
        queue="orders", task=None, reason="exception", exception_type="Other", frame="shop/orders.py:place"
    ).fingerprint
    command = console_script(DLQ, "groups", "regroup", "--yes")
    held = f"select from redrive.dead_letters where fingerprint = '{OLD[0]}' and id > 701 for update"
    with yard.database.locked(held):
        process = yard.processes.start("regroup", command, yard.settings)
        moved = "select count(*) from redrive.dead_letters where fingerprint = $1"
        eventually(
            lambda: yard.database.value(moved, heir) == 501, 30, "a batch is moved, the next one waits"
        )
        yard.publish("orders.dlq", *(plain(b"x", message_id=f"m{number}") for number in range(5)))
        eventually(lambda: len(yard.letters()) == 1_909, 20, "letters are stored meanwhile")
        assert process.exit_code is None
        yard.check_sums()
        process.send(signal.SIGKILL)
        process.wait()
    yard.processes.started.remove(process)
    place = "select regrouped_to, rule from redrive.group_states where fingerprint = $1"
    assert yard.database.fetch(place, OLD[0]) == [{"regrouped_to": 501, "rule": 1}]

    told = yard.regroup()
    assert told == {OLD[0]: {heir: 700}, OLD[1]: {heir: 700}, OLD[2]: {other: 3}}
    assert yard.database.value(moved, heir) == 1_906
    yard.check_sums()
    assert yard.regroup() == {}
    assert yard.told() == ["first_seen"]  # of what was drained


def test_an_operator_who_decides_meanwhile_has_the_last_word(yard: Yard) -> None:
    yard.make_old_group(OLD[0], "E0x7f01", "shop/orders.py:place")
    yard.many(OLD[0], 900)
    yard.database.execute(
        "insert into redrive.alert_subjects (subject, fingerprint, alerted_at, last_letter)"
        " values ($1, $1, now() - interval '1 h', now() - interval '1 h')",
        OLD[0],
    )
    heir = group_of(
        queue="orders", task=None, reason="exception", exception_type="E*", frame="shop/orders.py:place"
    ).fingerprint
    with yard.database.locked("select from redrive.dead_letters where id > 700 for update"):
        process = yard.processes.start(
            "regroup", console_script(DLQ, "groups", "regroup", "--yes"), yard.settings
        )
        there = "select count(*) from redrive.groups where fingerprint = $1"
        eventually(lambda: yard.database.value(there, heir) == 1, 30, "a batch is moved")
        assert yard.dlq_here("group", heir, "resolve", "--note", "mended").exit_code == 0
    assert process.wait() == 0, process.log
    yard.processes.started.remove(process)
    shown = yard.group(heir)
    assert (shown["state"], shown["letters"]) == ("resolved", 900)
    # Nobody hears that the old group is well: its letters are elsewhere.
    quiet = "select resolved_at is not null from redrive.alert_subjects where subject = $1"
    assert yard.database.value(quiet, OLD[0])
    assert yard.database.value("select alerted_at from redrive.alert_subjects where subject = $1", heir)
