"""Policies, left-overs and things of others: what a plan says of them, in words and as JSON."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.test_plan_compare import ENTITIES, TOPOLOGY, applied
from topology import exits
from topology.entities import Entities, compile_topology
from topology.lint.definitions import Exchange, Policy, Queue
from topology.plan.changes import Change, Difference, Plan
from topology.plan.compare import compare
from topology.plan.have import Have, HaveBinding
from topology.plan.policies import command
from topology.plan.text import as_json, lines, summary
from topology.spec import Ladder, Topology

LIMITED = compile_topology(
    Topology((replace(TOPOLOGY.queues[0], message_ttl_s=60, consumer_timeout_s=3_600),))
)
OURS = Policy("/", "redrive.jobs", "^jobs$", dict(LIMITED.policies[0].definition), "queues", 10)


def said(entities: Entities, *policies: Policy, version: str = "4.3.6") -> tuple[Change, ...]:
    return compare(entities, replace(applied(entities, version), policies=policies)).changes


def test_a_missing_policy_is_to_be_set() -> None:
    (change,) = said(LIMITED)

    assert (change.kind, change.name) == ("set", "redrive.jobs")
    assert Difference("message-ttl", None, 60_000) in change.differences
    assert Difference("priority", None, 10) in change.differences
    assert Plan((change,)).exit_code == exits.CHANGES


def test_an_operator_policy_of_its_name_does_not_stand_for_it() -> None:
    assert "set" in {change.kind for change in said(LIMITED, replace(OURS, operator=True))}


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (replace(OURS, priority=1), Difference("priority", 1, 10)),
        (replace(OURS, pattern="jobs"), Difference("pattern", "jobs", "^jobs$")),
        (replace(OURS, apply_to="all"), Difference("apply-to", "all", "queues")),
        (
            replace(OURS, definition={**OURS.definition, "max-length": 5}),
            Difference("max-length", 5, None),
        ),
    ],
)
def test_a_policy_of_our_name_that_differs_is_to_be_set(other: Policy, difference: Difference) -> None:
    (change,) = [each for each in said(LIMITED, other) if each.kind == "set"]

    assert change.differences == (difference,)


def test_a_policy_as_wanted_needs_nothing() -> None:
    assert said(LIMITED, OURS) == ()


def test_an_older_broker_gets_the_policy_without_the_consumer_timeout_and_says_so() -> None:
    changes = {change.kind: change for change in said(LIMITED, version="3.10.8")}

    assert Difference("message-ttl", None, 60_000) in changes["set"].differences
    assert Difference("consumer-timeout", None, 3_600_000) not in changes["set"].differences
    assert changes["left out"].differences == (Difference("consumer-timeout", None, 3_600_000),)
    assert "30 minutes" in changes["left out"].note


def test_the_command_of_a_policy_survives_a_shell() -> None:
    assert command("a b", LIMITED.policies[0]) == (
        "rabbitmqctl set_policy -p 'a b' --priority 10 --apply-to queues redrive.jobs '^jobs$' "
        """'{"message-ttl": 60000, "consumer-timeout": 3600000}'"""
    )


def test_a_policy_of_others_that_changes_nothing_of_ours_is_not_mentioned() -> None:
    harmless = Policy("/", "harmless", ".*", {"queue-leader-locator": "balanced"})
    elsewhere = Policy("/", "elsewhere", "^theirs", {"max-length": 1}, priority=99)

    assert said(LIMITED, OURS, harmless, elsewhere) == ()


def test_a_limit_that_an_argument_beats_is_not_mentioned_and_one_that_it_does_not_is() -> None:
    dead = Policy("/", "dead", "^jobs$", {"dead-letter-exchange": "x"})
    short = Policy("/", "short", "^jobs.retry", {"message-ttl": 100_000, "delivery-limit": 5})

    (change,) = said(ENTITIES, dead, short)

    assert change.name == "short"
    assert change.differences == (Difference("delivery-limit", 5, 2_000_000_000),)
    assert change.note == "holds on jobs.retry.250ms, jobs.retry.500ms"


@pytest.mark.parametrize(("priority", "words"), [(50, "in place of"), (10, "of the same priority as")])
def test_a_policy_before_ours_or_beside_it_is_a_warning(priority: int, words: str) -> None:
    other = Policy("/", "a-first", "jobs$", {"max-length": 5}, priority=priority)

    warnings = [change for change in said(LIMITED, OURS, other) if change.kind == "warning"]

    assert any(f"{words} redrive.jobs" in change.note for change in warnings)


def test_a_pattern_that_cannot_be_tried_is_said_so() -> None:
    (change,) = said(ENTITIES, Policy("/", "odd", "(?|a|b)(", {"max-length": 5}))

    assert (change.kind, change.name) == ("warning", "(?|a|b)(")


def bound(binding: HaveBinding) -> Have:
    have = applied()
    assert have.bindings is not None
    theirs = {"theirs": Exchange("/", "theirs"), **have.exchanges}
    return replace(have, bindings=have.bindings | {binding}, exchanges=theirs)


@pytest.mark.parametrize(
    ("binding", "kind", "words"),
    [
        (HaveBinding("jobs.dlx", "audit", "queue", "jobs"), "extra", "gets a copy of dead letters"),
        (HaveBinding("jobs.due", "audit", "queue", "#"), "extra", "gets a copy of retries"),
        (HaveBinding("jobs.due", "jobs", "queue", "*.*.*.jobs"), "left over", "nothing here deletes it"),
        (HaveBinding("theirs", "jobs", "queue", "a"), "extra", "arrive here"),
        (
            HaveBinding("jobs.retry.250ms", "jobs.retry.250ms", "queue", "1.*.#"),
            "left over",
            "nothing here deletes it",
        ),
        (
            HaveBinding("jobs.retry.250ms", "jobs.due", "exchange", "*.*.0.#"),
            "left over",
            "nothing here deletes it",
        ),
    ],
)
def test_a_binding_too_many(binding: HaveBinding, kind: str, words: str) -> None:
    (change,) = compare(ENTITIES, bound(binding)).changes

    assert change.kind == kind
    assert words in change.note


def test_bindings_between_others_are_not_mentioned() -> None:
    assert compare(ENTITIES, bound(HaveBinding("theirs", "audit", "queue", "jobs"))).changes == ()


def test_the_whole_of_a_former_topology_is_left_over() -> None:
    former = applied(compile_topology(Topology((replace(TOPOLOGY.queues[0], name="old"),))))
    have = applied()
    assert have.bindings is not None
    assert former.bindings is not None
    both = replace(
        have,
        exchanges={**former.exchanges, **have.exchanges},
        queues={**former.queues, **have.queues},
        bindings=have.bindings | former.bindings,
        messages={"old": 7},
    )

    plan = compare(ENTITIES, both)

    assert {change.kind for change in plan.changes} == {"left over"}
    assert {change.name for change in plan.changes} == {
        name for name in (*former.exchanges, *former.queues) if name.startswith("old")
    }
    assert "it holds 7 messages" in {change.name: change.note for change in plan.changes}["old"]
    assert plan.exit_code == exits.DONE


def test_what_only_looks_like_ours_is_not_left_over() -> None:
    have = applied()
    theirs = {
        name: Queue("/", name, arguments={"x-queue-type": "quorum"})
        for name in ("x.retry.5s", "x.dlq", "x", "x.retry.later")
    }
    exchanges = {"x.dlx": Exchange("/", "x.dlx")}
    both = replace(have, queues={**theirs, **have.queues}, exchanges={**exchanges, **have.exchanges})

    assert compare(ENTITIES, both).changes == ()


def test_a_ladder_with_another_tick_leaves_nothing_in_the_way() -> None:
    slower = compile_topology(Topology((replace(TOPOLOGY.queues[0], ladder=Ladder(300, 2)),)))

    plan = compare(slower, applied())

    assert plan.conflicts == ()


PLAN = Plan(
    (
        Change("conflict", "queue", "q", (Difference("x-message-ttl", 30_000, 60_000),)),
        Change("create", "queue", "r"),
        Change("warning", "policy", "p", (Difference("durable", False, None),), "why"),
    ),
    ("bindings",),
)


def test_a_plan_in_words() -> None:
    assert list(lines(PLAN)) == [
        "CONFLICT queue q",
        "    x-message-ttl: 30,000 -> 60,000",
        "create queue r",
        "WARNING policy p: why",
        "    durable: false -> none",
        "NOT SEEN bindings",
    ]
    assert summary(PLAN) == "1 conflict, 1 create, 1 warning"
    assert summary(Plan(())) == "nothing to do"


def test_a_plan_as_json() -> None:
    found = as_json(PLAN)

    assert found["exit_code"] == exits.CONFLICT
    assert found["not_seen"] == ["bindings"]
    assert found["changes"][0] == {
        "kind": "conflict",
        "entity": "queue",
        "name": "q",
        "note": "",
        "differences": [{"argument": "x-message-ttl", "have": 30_000, "want": 60_000}],
    }
