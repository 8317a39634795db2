"""What a broker has against what the topology wants, entity by entity and argument by argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.as_applied import as_applied
from topology import exits
from topology.entities import NO_DELIVERY_LIMIT, Entities, compile_topology
from topology.lint.definitions import Queue
from topology.plan.changes import Change, Difference
from topology.plan.compare import compare
from topology.plan.have import Have, HaveBinding
from topology.spec import Ladder, Topology, WorkQueue

TOPOLOGY = Topology((WorkQueue("jobs", Ladder(steps=2)),))
ENTITIES = compile_topology(TOPOLOGY)
HOLDING = {"x-queue-type": "quorum", "x-delivery-limit": NO_DELIVERY_LIMIT}


def applied(entities: Entities = ENTITIES, version: str = "4.3.6") -> Have:
    """Without policies of its own: the tests here give them."""
    return replace(as_applied(entities, version), policies=())


def with_queue(name: str, arguments: Mapping[str, object] | None = None, **properties: Any) -> Have:
    have = applied()
    queue = replace(have.queues[name], **properties)
    if arguments is not None:
        queue = replace(queue, arguments=arguments)
    return replace(have, queues={**have.queues, name: queue})


def differences(have: Have, name: str) -> tuple[Difference, ...]:
    (change,) = compare(ENTITIES, have).changes
    assert (change.kind, change.name) == ("conflict", name)
    return change.differences


def test_a_broker_that_has_everything_needs_nothing() -> None:
    plan = compare(ENTITIES, applied())

    assert (plan.changes, plan.exit_code) == ((), exits.DONE)


def test_an_empty_vhost_lacks_every_entity() -> None:
    plan = compare(ENTITIES, Have("4.3.6", {}, {}, frozenset(), ()))

    assert {change.kind for change in plan.changes} == {"create"}
    assert len(plan.changes) == len(ENTITIES.exchanges) + len(ENTITIES.queues) + len(ENTITIES.bindings)
    assert plan.exit_code == exits.CHANGES


def test_what_only_newer_brokers_compare_is_a_conflict_there_alone() -> None:
    arguments = {**applied().queues["jobs"].arguments, "x-delayed-retry-type": "all"}
    have = with_queue("jobs", arguments)

    assert differences(have, "jobs") == (Difference("x-delayed-retry-type", "all", None),)
    assert compare(ENTITIES, replace(have, version="4.2.1")).changes == ()


def test_a_queue_of_another_program_is_no_begun_migration() -> None:
    have = applied()
    queues = {**have.queues, "jobs.moving": Queue("/", "jobs.moving", arguments={"x-queue-type": "classic"})}

    assert compare(ENTITIES, replace(have, queues=queues)).exit_code == exits.DONE


@pytest.mark.parametrize("there", [True, False])
def test_a_migration_that_was_interrupted_is_a_conflict_until_it_is_done(there: bool) -> None:
    have = applied()
    queues = {**have.queues, "jobs.moving": Queue("/", "jobs.moving", arguments=HOLDING)}
    if not there:
        del queues["jobs"]

    plan = compare(ENTITIES, replace(have, queues=queues))

    assert [(c.name, c.note) for c in plan.conflicts] == [
        ("jobs", "its migration is under way or was interrupted: topology migrate goes on with it")
    ]
    assert plan.exit_code == exits.CONFLICT


def test_what_was_not_seen_is_not_missing() -> None:
    plan = compare(ENTITIES, replace(applied(), bindings=None, policies=None))

    assert plan.changes == ()


def test_another_ttl_is_a_conflict_with_have_and_want() -> None:
    arguments = dict(applied().queues["jobs.retry.250ms"].arguments) | {"x-message-ttl": 30_000}

    found = differences(with_queue("jobs.retry.250ms", arguments), "jobs.retry.250ms")

    assert found == (Difference("x-message-ttl", 30_000, 250),)


def test_a_bare_classic_dead_letter_queue_differs_in_type_and_limit() -> None:
    assert differences(with_queue("jobs.dlq", {"x-queue-type": "classic"}), "jobs.dlq") == (
        Difference("x-delivery-limit", None, 2_000_000_000),
        Difference("x-queue-type", "classic", "quorum"),
    )


@pytest.mark.parametrize(
    ("name", "value", "want"),
    [("durable", False, True), ("auto_delete", True, False), ("exclusive", True, False)],
)
def test_a_property_that_differs_is_a_conflict(name: str, value: bool, want: bool) -> None:
    changed: dict[str, Any] = {name: value}
    assert differences(with_queue("jobs", **changed), "jobs") == (Difference(name, value, want),)


def test_an_argument_too_many_is_a_conflict_only_where_the_broker_compares_it() -> None:
    wanted = dict(applied().queues["jobs"].arguments)

    assert compare(ENTITIES, with_queue("jobs", wanted | {"x-team": "blue"})).changes == ()
    found = differences(with_queue("jobs", wanted | {"x-max-length": 5}), "jobs")
    assert found == (Difference("x-max-length", 5, None),)


def test_true_is_not_one() -> None:
    single = compile_topology(Topology((replace(TOPOLOGY.queues[0], single_active_consumer=True),)))
    have = applied(single)
    queue = have.queues["jobs"]
    arguments = dict(queue.arguments) | {"x-single-active-consumer": 1}
    have = replace(have, queues={**have.queues, "jobs": replace(queue, arguments=arguments)})

    assert [change.kind for change in compare(single, have).changes] == ["conflict"]


def test_an_exchange_of_another_type_is_a_conflict() -> None:
    have = applied()
    exchange = replace(have.exchanges["jobs.dlx"], type="topic", arguments={})
    have = replace(have, exchanges={**have.exchanges, "jobs.dlx": exchange})

    plan = compare(ENTITIES, have)

    assert plan.conflicts == (
        Change(
            "conflict",
            "exchange",
            "jobs.dlx",
            (
                Difference("type", "topic", "direct"),
                Difference("alternate-exchange", None, "redrive.unrouted"),
            ),
        ),
    )
    assert plan.exit_code == exits.CONFLICT


@pytest.mark.parametrize(
    ("name", "value", "want"),
    [("durable", False, True), ("auto_delete", True, False), ("internal", True, False)],
)
def test_a_property_of_an_exchange_that_differs_is_a_conflict(name: str, value: bool, want: bool) -> None:
    have, changed = applied(), dict[str, Any]({name: value})
    exchange = replace(have.exchanges["jobs.dlx"], **changed)
    have = replace(have, exchanges={**have.exchanges, "jobs.dlx": exchange})
    assert differences(have, "jobs.dlx") == (Difference(name, value, want),)


def test_a_binding_with_arguments_is_not_ours() -> None:
    have = applied()
    assert have.bindings is not None
    ours = HaveBinding("jobs.dlx", "jobs.dlq", "queue", "jobs")
    have = replace(have, bindings=have.bindings - {ours} | {replace(ours, arguments=True)})

    assert compare(ENTITIES, have).changes[0] == Change("create", "binding", "jobs.dlx → jobs.dlq (jobs)")
