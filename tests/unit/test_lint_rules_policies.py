"""Policies that are refused, passed over, hidden, or at odds with arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.lint_fixtures import (
    NEWEST,
    OLDEST,
    alarms,
    bind,
    by_code,
    dead_letters_to,
    defined,
    findings,
    notes,
    only,
    policy,
    q,
    quorum,
    x,
)
from topology.lint.run import lint

LETTERS = (x("dead"), q("letters"), bind("dead", "letters", "failed"))
DEAD_LETTERS = {"dead-letter-exchange": "dead", "dead-letter-routing-key": "failed"}


def test_a_policy_that_dead_letters_is_no_finding() -> None:
    assert alarms(q("work"), policy("p", "^work$", DEAD_LETTERS), *LETTERS) == {}


@pytest.mark.parametrize("key", ["x-queue-type", "max-priority", "x-message-ttl", "dead-letter"])
def test_an_unknown_key_is_refused(key: str) -> None:
    assert alarms(q("work"), policy("p", "^work$", {key: 5})) == {"POLICY-UNKNOWN-KEY": ["policy 'p'"]}


@pytest.mark.parametrize("definition", [{"message-ttl": "60"}, {"overflow": "drop"}, {"max-length": -1}])
def test_a_wrong_value_is_refused(definition: dict[str, object]) -> None:
    assert "POLICY-VALUE" in alarms(q("work"), policy("p", "^work$", definition))


def test_mirroring_is_a_warning_on_3_and_an_error_where_it_is_to_be_imported_into_4() -> None:
    mirrored = (q("work"), policy("ha", "^work$", {"ha-mode": "all"}))
    assert alarms(*mirrored, target=OLDEST) == {"HA-POLICY": ["policy 'ha'"]}
    assert only(findings(*mirrored, target=OLDEST), "HA-POLICY").severity == "warning"
    assert only(findings(*mirrored, target=NEWEST), "HA-POLICY").severity == "error"
    stored = lint(defined(*mirrored, version="4.3.6"), NEWEST)
    assert only(stored, "HA-POLICY").severity == "warning"
    assert only(stored, "HA-POLICY").versions == "4.0+"


def test_a_policy_with_a_key_of_another_queue_type_is_passed_over_whole() -> None:
    lazy = policy("lazy", "^work$", {"queue-mode": "lazy", **DEAD_LETTERS})
    found = findings(quorum("work"), lazy, *LETTERS, target=OLDEST)
    skipped = only(found, "POLICY-NOT-APPLICABLE")
    assert (skipped.severity, skipped.entity) == ("error", "queue 'work'")
    assert "'queue-mode'" in skipped.message
    vain = only(found, "POLICY-NEVER-WINS")
    assert vain.entity == "policy 'lazy'"
    assert vain.message.startswith("it matches queue 'work' and is in force on none: keys that")
    assert vain.fix == "take out the keys that POLICY-NOT-APPLICABLE names"
    assert alarms(q("work"), lazy, *LETTERS, target=OLDEST) == {}
    stream = q("work", {"x-queue-type": "stream"})
    assert only(findings(stream, lazy, *LETTERS), "POLICY-NOT-APPLICABLE").severity == "info"


def test_passing_over_a_policy_without_dead_letter_exchange_is_a_warning() -> None:
    found = findings(quorum("work"), policy("lazy", "^work$", {"queue-mode": "lazy"}), target=OLDEST)
    assert only(found, "POLICY-NOT-APPLICABLE").severity == "warning"


def test_a_higher_priority_takes_the_dead_letter_exchange_away() -> None:
    low = policy("letters", "^work$", DEAD_LETTERS)
    high = policy("limits", "^work$", {"max-length": 5, "overflow": "reject-publish"}, priority=1)
    found = alarms(q("work"), low, high, *LETTERS)
    assert found["POLICY-KEYS-LOST"] == ["queue 'work'"]
    assert found["POLICY-NEVER-WINS"] == ["policy 'letters'"]
    with_argument = q("work", dead_letters_to("dead", "failed"))
    assert "POLICY-KEYS-LOST" not in alarms(with_argument, low, high, *LETTERS)


def test_a_policy_that_matches_nothing() -> None:
    assert alarms(q("work"), policy("p", "^other", {"max-length": 5})) == {"POLICY-NO-MATCH": ["policy 'p'"]}
    exchanges_only = policy("p", "^work$", {"alternate-exchange": "rest"}, apply_to="exchanges")
    assert alarms(q("work"), exchanges_only) == {"POLICY-NO-MATCH": ["policy 'p'"]}


def test_patterns_are_not_anchored() -> None:
    assert "POLICY-NO-MATCH" not in alarms(q("my-work-queue"), policy("p", "work", {"expires": 5}))


def test_two_policies_of_one_priority_on_one_queue_tie() -> None:
    one = policy("a", "^work$", DEAD_LETTERS)
    assert alarms(q("work"), one, policy("b", "^wo", DEAD_LETTERS), *LETTERS) == {
        "POLICY-OVERLAP-TIE": ["policy 'a'"]
    }
    assert "POLICY-OVERLAP-TIE" not in alarms(
        q("work"), one, policy("b", "^wo", DEAD_LETTERS, priority=1), *LETTERS
    )


def test_of_policies_that_tie_the_one_that_a_live_broker_names_is_in_force() -> None:
    short, capped = policy("short", "^w", {"message-ttl": 1_000}), policy("cap", "^w", {"max-length": 5})
    for name, code in (("short", "DROP-TTL"), ("cap", "DROP-MAXLEN"), ("gone", "DROP-MAXLEN")):
        assert set(alarms(replace(q("work"), policy=name), short, capped)) == {code, "POLICY-OVERLAP-TIE"}
    higher = replace(capped, priority=1)
    assert "DROP-MAXLEN" in alarms(replace(q("work"), policy="short"), short, higher)


def test_a_pattern_for_everything_ties_with_policies_that_match_nothing_yet() -> None:
    things = (q("x"), policy("all", "", {"expires": 5}), policy("mqtt", "^mqtt", {"expires": 5}))
    assert alarms(*things)["POLICY-OVERLAP-TIE"] == ["policy 'all'"]


def test_policies_that_apply_to_different_queue_types_do_not_tie() -> None:
    things = (
        quorum("work", dead_letters_to("dead", "failed")),
        policy("a", "^work$", {"delivery-limit": 5}, apply_to="quorum_queues"),
        policy("b", "", {"max-length": 5}, apply_to="streams"),
    )
    assert "POLICY-OVERLAP-TIE" not in alarms(*things, *LETTERS)


def test_an_operator_policy_does_not_compete_with_a_policy() -> None:
    limits = policy("limits", ".*", {"max-length": 9}, operator=True)
    assert "POLICY-OVERLAP-TIE" not in alarms(q("work"), policy("all", ".*", {"max-length": 5}), limits)


def test_argument_and_policy_that_disagree() -> None:
    work = q("work", {**dead_letters_to("dead", "failed"), "x-overflow": "drop-head"})
    other = policy("p", "^work$", {"dead-letter-routing-key": "other", "overflow": "reject-publish"})
    assert alarms(work, other, *LETTERS) == {"ARG-POLICY-CONFLICT": ["queue 'work'", "queue 'work'"]}
    same = policy("p", "^work$", {"dead-letter-routing-key": "failed", "overflow": "drop-head"})
    assert alarms(work, same, *LETTERS) == {}


def test_overflow_of_a_policy_holds_on_quorum_queues() -> None:
    work = quorum("work", {**dead_letters_to("dead", "failed"), "x-overflow": "drop-head"})
    other = policy("p", "^work$", {"overflow": "reject-publish"})
    assert "the policy holds" in only(findings(work, other, *LETTERS), "ARG-POLICY-CONFLICT").message
    classic = q("work", {**dead_letters_to("dead", "failed"), "x-overflow": "drop-head"})
    assert "the argument holds" in only(findings(classic, other, *LETTERS), "ARG-POLICY-CONFLICT").message


def test_exchange_from_an_argument_and_key_from_a_policy_are_a_mix() -> None:
    half = policy("p", "^work$", {"dead-letter-routing-key": "failed"})
    assert alarms(q("work", dead_letters_to("dead")), half, *LETTERS) == {"ARG-POLICY-MIX": ["queue 'work'"]}
    assert alarms(q("work", dead_letters_to("dead", "failed")), half, *LETTERS) == {}


def test_numbers_take_the_smaller() -> None:
    things = (q("work", {"x-message-ttl": 5, **dead_letters_to("dead", "failed")}), *LETTERS)
    assert notes(*things, policy("p", "^work$", {"message-ttl": 3}))["ARG-POLICY-MIN"] == ["queue 'work'"]
    assert "ARG-POLICY-MIN" not in notes(*things, policy("p", "^work$", {"message-ttl": 5}))


def test_a_policy_that_names_a_missing_exchange_before_any_queue_is_under_it() -> None:
    found = alarms(q("work"), policy("p", "^mqtt", {"dead-letter-exchange": "dead"}))
    assert found == {"POLICY-DLX-MISSING": ["policy 'p'"], "POLICY-NO-MATCH": ["policy 'p'"]}


def test_an_alternate_exchange_can_come_from_a_policy() -> None:
    things = (x("events"), policy("ae", "^events$", {"alternate-exchange": "rest"}, apply_to="exchanges"))
    assert alarms(*things) == {"AE-MISSING": ["exchange 'events'"]}
    assert alarms(*things, x("rest", "fanout"), q("rest"), bind("rest", "rest")) == {}


def test_a_pattern_that_cannot_be_tried_is_said_and_left_out() -> None:
    found = lint(defined(q("work"), policy("p", "^(?|work)$", {"max-length": 5})), NEWEST)
    assert set(by_code(one for one in found if one.severity != "info")) == {"POLICY-PATTERN"}
