"""Which step a request to the third party meets."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from dev.thirdparty.rules import Rule, Rules, Step


def rules(*each: dict[str, Any]) -> Rules:
    made = Rules()
    for rule in each:
        made.put(Rule.model_validate(rule))
    return made


def statuses(given: Rules, path: str, body: object = None, count: int = 3, method: str = "POST") -> list[Any]:
    steps = [given.next_step(method, path, body) for _ in range(count)]
    return [step and step.status for step in steps]


def test_each_request_takes_the_next_step_and_then_all_is_well() -> None:
    given = rules({"path": "/payments", "steps": [{"status": 503}, {"status": 500}]})
    assert statuses(given, "/payments") == [503, 500, None]


def test_the_last_step_repeats_when_told() -> None:
    given = rules({"path": "/payments", "steps": [{"status": 503}, {"status": 400}], "then": "repeat"})
    assert statuses(given, "/payments", count=4) == [503, 400, 400, 400]


def test_other_paths_methods_and_bodies_are_left_alone() -> None:
    given = rules({"path": "/payments", "method": "POST", "match": {"id": "p1"}, "steps": [{"status": 503}]})
    assert statuses(given, "/charges", {"id": "p1"}, 1) == [None]
    assert statuses(given, "/payments", {"id": "p2"}, 1) == [None]
    assert statuses(given, "/payments", {"id": "p1"}, 1, method="GET") == [None]
    assert statuses(given, "/payments", ["id"], 1) == [None]
    assert statuses(given, "/payments", {"id": "p1", "more": 1}, 1) == [503]


def test_a_star_stands_for_any_name() -> None:
    given = rules({"path": "/files/*", "steps": [{"delay": 1.0}], "then": "repeat"})
    assert given.next_step("PUT", "/files/a.txt", None) == Step(delay=1.0)
    assert given.next_step("PUT", "/payments", None) is None


def test_a_rule_takes_the_place_of_one_for_the_same_requests() -> None:
    given = rules(
        {"path": "/payments", "steps": [{"status": 503}], "then": "repeat"},
        {"path": "/payments", "steps": [{"status": 400}]},
    )
    assert statuses(given, "/payments") == [400, None, None]


def test_the_newest_of_several_rules_counts() -> None:
    given = rules(
        {"path": "/payments", "steps": [{"status": 503}], "then": "repeat"},
        {"path": "/payments", "match": {"id": "p1"}, "steps": [{"status": 400}], "then": "repeat"},
    )
    assert statuses(given, "/payments", {"id": "p1"}, 1) == [400]
    assert statuses(given, "/payments", {"id": "p2"}, 1) == [503]


def test_cleared_rules_fail_nobody() -> None:
    given = rules({"path": "/payments", "steps": [{"status": 503}], "then": "repeat"})
    given.clear()
    assert statuses(given, "/payments", count=1) == [None]


@pytest.mark.parametrize(
    "step",
    [
        {},
        {"status": 503, "drop": True},
        {"drop": True, "timeout": 3},
        {"retry_after": 3},
        {"body": {}, "drop": True},
        {"delay": 1, "effect": True},
        {"status": 99},
        {"delay": -1},
        {"stauts": 503},
    ],
)
def test_a_step_that_makes_no_sense_is_refused(step: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Step.model_validate(step)
