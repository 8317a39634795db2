"""What the broker refuses at declare time. Every line was tried on 3.10.8 and 4.3.6."""

from __future__ import annotations

import pytest

from tests.support.definitions import exchange, policy, queue
from topology.lint.arguments import Problem, QueueType, check_exchange, check_policy, check_queue
from topology.lint.target import SUPPORTED, Target

OLD, NEW = Target(3, 10), Target(4, 3)


def problems(kind: QueueType, target: Target = NEW, **arguments: object) -> list[tuple[str, bool]]:
    return [(one.kind, one.refused) for one in check_queue(queue("q", **arguments), kind, target)]


@pytest.mark.parametrize("target", SUPPORTED)
@pytest.mark.parametrize(
    ("kind", "argument", "value", "found"),
    [
        ("classic", "message_ttl", 0, []),
        ("classic", "message_ttl", "1000", [("wrong_type", True)]),
        ("classic", "message_ttl", 1000.0, [("wrong_type", True)]),
        ("classic", "message_ttl", -1, [("bad_value", True)]),
        ("classic", "message_ttl", 315_360_000_001, [("bad_value", True)]),
        ("classic", "expires", 0, [("bad_value", True)]),
        ("classic", "expires", True, [("wrong_type", True)]),
        ("classic", "dead_letter_exchange", "", []),
        ("classic", "dead_letter_exchange", None, [("wrong_type", True)]),
        ("classic", "dead_letter_routing_key", "k", [("incomplete", True)]),
        ("classic", "dead_letter_strategy", "at-least-once", [("unsupported", True)]),
        ("classic", "delivery_limit", 5, [("unsupported", True)]),
        ("classic", "max_priority", 256, [("bad_value", True)]),
        ("classic", "overflow", "drop-tail", [("bad_value", True)]),
        ("classic", "single_active_consumer", "true", [("wrong_type", True)]),
        ("classic", "max_retries", 3, [("unknown", False)]),
        ("classic", "queue_type", "nonsense", [("bad_value", True)]),
        ("quorum", "max_priority", 5, [("unsupported", True)]),
        ("quorum", "queue_mode", "lazy", [("unsupported", True)]),
        ("quorum", "overflow", "reject-publish-dlx", [("unsupported", False)]),
        ("quorum", "delivery_limit", 5, []),
        ("quorum", "delivery_limit", "5", [("wrong_type", False)]),
        ("quorum", "dead_letter_strategy", "exactly-once", [("bad_value", True)]),
        ("quorum", "quorum_target_group_size", 3, []),
        ("stream", "max_length", 5, [("unsupported", True)]),
        ("stream", "message_ttl", 5, [("unsupported", True)]),
        ("stream", "max_age", "7D", []),
        ("stream", "max_age", "7d", [("bad_value", True)]),
        ("stream", "max_age", "0s", [("bad_value", True)]),
    ],
)
def test_an_argument(
    kind: QueueType, argument: str, value: object, found: list[tuple[str, bool]], target: Target
) -> None:
    assert problems(kind, target, **{argument: value}) == found


@pytest.mark.parametrize(
    ("kind", "argument", "value", "before", "now"),
    [
        ("classic", "queue_leader_locator", "balanced", [("unsupported", True)], []),
        ("classic", "queue_version", 1, [], [("bad_value", True)]),
        ("classic", "queue_mode", "lazy", [], [("removed", False)]),
        ("classic", "queue_mode", "x", [("bad_value", True)], [("bad_value", False)]),
        ("classic", "queue_master_locator", "min-masters", [], [("removed", True)]),
        ("classic", "consumer_timeout", 1000, [("unknown", False)], [("unsupported", True)]),
        ("quorum", "consumer_timeout", 1000, [("unknown", False)], []),
        ("quorum", "delivery_limit", -1, [("bad_value", False)], []),
        ("stream", "stream_filter_size_bytes", 1, [("unknown", False)], [("bad_value", True)]),
    ],
)
def test_an_argument_that_changed(
    kind: QueueType,
    argument: str,
    value: object,
    before: list[tuple[str, bool]],
    now: list[tuple[str, bool]],
) -> None:
    assert problems(kind, OLD, **{argument: value}) == before
    assert problems(kind, NEW, **{argument: value}) == now


def test_a_problem_says_what_would_be_right() -> None:
    assert check_queue(queue("q", message_ttl="1000"), "classic", NEW) == (
        Problem(
            "wrong_type",
            "x-message-ttl",
            "1000",
            "a whole number of milliseconds from 0 to 315360000000",
            refused=True,
        ),
    )


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_a_replicated_queue_is_durable_and_stays(kind: QueueType) -> None:
    found = check_queue(queue("q", durable=False, auto_delete=True), kind, NEW)
    assert [(one.name, one.refused) for one in found] == [("durable", True), ("auto_delete", True)]
    assert check_queue(queue("q", durable=False, auto_delete=True), "classic", NEW) == ()


@pytest.mark.parametrize(
    ("definition", "before", "now"),
    [
        ({"message-ttl": 1}, [], []),
        ({"message-ttl": "1"}, ["wrong_type"], ["wrong_type"]),
        ({"x-queue-type": "quorum"}, ["unknown"], ["unknown"]),
        ({"max-priority": 5}, ["unknown"], ["unknown"]),
        ({"ha-mode": "all", "ha-sync-mode": "automatic"}, [], ["removed", "removed"]),
        ({"delivery-limit": -1}, ["bad_value"], []),
        ({"consumer-timeout": 1}, ["unknown"], []),
        ({"queue-mode": "lazy"}, [], ["removed"]),
        ({"federation-upstream-set": "all"}, [], []),
        ({}, ["incomplete"], ["incomplete"]),
    ],
)
def test_a_policy(definition: dict[str, object], before: list[str], now: list[str]) -> None:
    given = policy("p", "^x", definition)
    assert [one.kind for one in check_policy(given, OLD)] == before
    assert [one.kind for one in check_policy(given, NEW)] == now


def test_an_operator_policy_has_fewer_keys() -> None:
    def kinds(target: Target, definition: dict[str, object]) -> list[str]:
        given = policy("p", "^x", definition, operator=True)
        return [one.kind for one in check_policy(given, target)]

    assert kinds(NEW, {"max-length": 1}) == []
    assert kinds(NEW, {"dead-letter-exchange": "x"}) == ["unknown"]
    assert (kinds(OLD, {"overflow": "drop-head"}), kinds(NEW, {"overflow": "drop-head"})) == (["unknown"], [])


def test_a_policy_for_one_queue_type_is_new() -> None:
    given = policy("p", "^x", {"max-length": 1}, apply_to="quorum_queues")
    assert [one.name for one in check_policy(given, OLD)] == ["apply-to"]
    assert check_policy(given, NEW) == ()


@pytest.mark.parametrize(
    ("kind", "rest", "found"),
    [
        ("topic", {}, []),
        ("banana", {}, [("unknown", "type", True)]),
        ("x-consistent-hash", {}, [("plugin", "type", False)]),
        ("x-delayed-message", {}, [("plugin", "type", False), ("incomplete", "x-delayed-type", True)]),
        ("x-delayed-message", {"delayed_type": "direct"}, [("plugin", "type", False)]),
    ],
)
def test_an_exchange(kind: str, rest: dict[str, object], found: list[tuple[str, str, bool]]) -> None:
    result = check_exchange(exchange("x", kind, **rest), NEW)
    assert [(one.kind, one.name, one.refused) for one in result] == found
