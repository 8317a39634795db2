"""Our own topologies raise no alarm, whatever the version and whatever the spec allows."""

from __future__ import annotations

import pytest

from tests.support.lint_fixtures import by_code
from topology.catalogue import TOPOLOGY
from topology.entities import compile_topology
from topology.lint.from_topology import from_entities
from topology.lint.run import lint
from topology.lint.target import SUPPORTED, Target
from topology.spec import Ladder, Topology, WorkQueue

SHARED = Ladder(tick_ms=250, steps=4, shared="later")
EVERY_FIELD = Topology(
    queues=(
        WorkQueue("plain", ladder=Ladder(steps=4)),
        WorkQueue("a", ladder=SHARED),
        WorkQueue("b.a", ladder=SHARED),
        WorkQueue("late", ladder=Ladder(steps=4), message_ttl_s=60),
        WorkQueue("single", ladder=SHARED, single_active_consumer=True),
        WorkQueue(
            "classic",
            ladder=Ladder(steps=4),
            type="classic",
            classic_reason="priorities",
            max_priority=5,
            message_ttl_s=60,
        ),
    )
)


def alarms(topology: Topology, target: Target) -> dict[str, list[str]]:
    found = lint(from_entities(compile_topology(topology), "a topology"), target)
    return by_code(finding for finding in found if finding.severity != "info")


@pytest.mark.parametrize("target", SUPPORTED, ids=str)
def test_every_field_of_the_spec_lints_clean(target: Target) -> None:
    assert alarms(EVERY_FIELD, target) == {}


@pytest.mark.parametrize("target", [SUPPORTED[0], SUPPORTED[-1]], ids=str)
def test_the_sample_catalogue_lints_clean(target: Target) -> None:
    assert alarms(TOPOLOGY, target) == {}


def test_a_consumer_timeout_of_a_queue_is_a_policy_key_that_3_10_does_not_know() -> None:
    slow = Topology(queues=(WorkQueue("slow", ladder=Ladder(steps=4), consumer_timeout_s=3_600),))
    assert alarms(slow, SUPPORTED[0]) == {"POLICY-UNKNOWN-KEY": ["policy 'redrive.slow'"]}
    assert alarms(slow, SUPPORTED[1]) == {}


def test_a_ladder_step_is_no_source_of_copies() -> None:
    found = lint(from_entities(compile_topology(EVERY_FIELD), "a topology"), SUPPORTED[-1])
    assert by_code(found).keys() & {"DLX-FANS-OUT", "RETRY-DUPLICATES", "DLX-PARTIAL"} == set()
