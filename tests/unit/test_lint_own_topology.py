"""Our own topologies raise no alarm, whatever the version and whatever the spec allows."""

from __future__ import annotations

import pytest

from tests.support.lint_fixtures import by_code
from topology.catalogue import TOPOLOGY
from topology.entities import compile_topology
from topology.lint.from_topology import as_applied_to, from_entities
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
        WorkQueue("slow", ladder=SHARED, consumer_timeout_s=3_600, message_ttl_s=60),
        WorkQueue("slower", ladder=SHARED, consumer_timeout_s=7_200),
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
    definitions = from_entities(compile_topology(topology), "a topology")
    found = lint(as_applied_to(definitions, (target.major, target.minor))[0], target)
    return by_code(finding for finding in found if finding.severity != "info")


@pytest.mark.parametrize("target", SUPPORTED, ids=str)
def test_every_field_of_the_spec_lints_clean(target: Target) -> None:
    assert alarms(EVERY_FIELD, target) == {}


@pytest.mark.parametrize("target", [SUPPORTED[0], SUPPORTED[-1]], ids=str)
def test_the_sample_catalogue_lints_clean(target: Target) -> None:
    assert alarms(TOPOLOGY, target) == {}


def test_what_a_release_does_not_know_is_left_out_as_apply_does_and_told() -> None:
    definitions = from_entities(compile_topology(EVERY_FIELD), "a topology")
    old, told = as_applied_to(definitions, (3, 10))
    slow = {policy.name: policy.definition for policy in old.policies}
    assert (slow["redrive.slow"], "redrive.slower" in slow) == ({"message-ttl": 60_000}, False)
    assert told == tuple(
        f"RabbitMQ 3.10 does not know consumer-timeout: apply leaves it out of policy redrive.{name}"
        for name in ("slow", "slower")
    )
    assert as_applied_to(definitions, (3, 12)) == (definitions, ())


def test_a_ladder_step_is_no_source_of_copies() -> None:
    found = lint(from_entities(compile_topology(EVERY_FIELD), "a topology"), SUPPORTED[-1])
    assert by_code(found).keys() & {"DLX-FANS-OUT", "RETRY-DUPLICATES", "DLX-PARTIAL"} == set()
