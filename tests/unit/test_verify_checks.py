"""What is concluded from a broker's state and from a probe's arrival, without a broker."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

import pytest

from tests.support.as_applied import as_applied
from topology.channel import QueueState
from topology.entities import NO_DELIVERY_LIMIT, compile_topology
from topology.lint.definitions import Policy as HavePolicy
from topology.lint.definitions import Queue as HaveQueue
from topology.names import UNROUTED, UNROUTED_DLQ
from topology.plan.have import HaveBinding
from topology.policy_harm import InForce
from topology.probe import Arrival
from topology.spec import Ladder, Topology, WorkQueue
from topology.verify.check import Check
from topology.verify.condition import check_broker, check_queues, check_stuck
from topology.verify.declared import Owners, check_bindings, check_entities
from topology.verify.legs import Leg, dead_letter_legs, ladder_legs, ladders, way_out
from topology.verify.live import Live, LiveQueue
from topology.verify.policies import check_policies
from topology.verify.verdict import Evidence, absent, arrived, before

RUN = UUID("0b6a4f5e-6a0e-4d38-9a0e-1f0f5b3f0c11")
TOPOLOGY = Topology(
    (
        WorkQueue("jobs", Ladder(steps=3), message_ttl_s=60, consumer_timeout_s=3600),
        WorkQueue("mails", Ladder(steps=3)),
    )
)
ENTITIES, OWNERS = compile_topology(TOPOLOGY), Owners.in_(TOPOLOGY)
DLQ_ARGUMENTS = {"x-queue-type": "quorum", "x-delivery-limit": NO_DELIVERY_LIMIT}


def as_declared(version: str = "4.3.6", **changes: dict[str, Any]) -> Live:
    """A broker on which all is well, but for `changes` of queues by name (`_` for `.`)."""
    by_queue = {policy.name.removeprefix("redrive."): policy for policy in ENTITIES.policies}
    queues = {}
    for queue in ENTITIES.queues:
        own = by_queue.get(queue.name)
        made = LiveQueue(
            queue.name, state="running", consumers=0,
            in_force=InForce(own.name if own else None, None, own.definition if own else {}),
            stuck=0, members=3, online=3,
        )  # fmt: skip
        other = dict(changes.get(queue.name.replace(".", "_"), {}))
        policies = {name: other.pop(name) for name in vars(made.in_force) if name in other}
        in_force = dataclasses.replace(made.in_force, **policies)
        queues[queue.name] = dataclasses.replace(made, in_force=in_force, **other)
    return Live(as_applied(ENTITIES, version), queues, ())


def having(live: Live, **changes: Any) -> Live:
    return dataclasses.replace(live, have=dataclasses.replace(live.have, **changes))


def found(live: Live) -> list[Check]:
    return [
        *check_entities(ENTITIES, live.have, OWNERS),
        *check_bindings(ENTITIES, live.have, OWNERS),
        *check_policies(TOPOLOGY, ENTITIES, live, OWNERS),
        *check_queues(ENTITIES, live, OWNERS),
    ]


def test_nothing_is_said_of_what_is_as_declared() -> None:
    assert found(as_declared()) == []
    assert {check.status for check in check_broker(as_declared())} == {"ok"}


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"jobs_dlq": {"state": "down"}}, "queue jobs.dlq", "its state is down"),
        ({"jobs_dlq": {"online": 1}}, "queue jobs.dlq", "1 of 3 members are online"),
        ({"jobs_retry_1s": {"consumers": 2}}, "queue jobs.retry.1s", "2 consumers take retries"),
        ({"mails": {"effective": {"expires": 5}, "operator_policy": "o"}}, "queue mails: operator policy 'o'",
         "expires is 5"),
        ({"mails": {"effective": {"max-length-bytes": 5}, "policy": "p"}}, "queue mails: policy 'p'",
         "max-length-bytes is 5"),
        ({"mails": {"effective": {"message-ttl": 5}, "policy": "p"}}, "queue mails: policy 'p'",
         "jobs that wait longer are dead-lettered as expired"),
        ({"mails": {"effective": {"consumer-timeout": 60_000}, "policy": "p"}}, "queue mails: policy 'p'",
         "their time limit is 900 s"),
        ({"jobs": {"effective": {"message-ttl": 5, "consumer-timeout": 3_600_000}, "operator_policy": "o"}},
         "queue jobs: operator policy 'o'", "message-ttl is 5"),
        ({"jobs": {"policy": "theirs", "effective": {}}}, "queue jobs: policy 'redrive.jobs'",
         "it is not in force: policy 'theirs' is"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_once(changes: dict[str, Any], path: str, words: str) -> None:
    live = as_declared(**changes)
    (check,) = found(live)
    assert check.path == path or (check.path.endswith(" or operator policy 'o'") and path.endswith("'o'"))
    assert words in check.reason
    assert check.fix


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (HaveQueue("/", "jobs.dlq", arguments={"x-queue-type": "quorum"}),
         "x-delivery-limit is not set, declared is 2000000000"),
        (HaveQueue("/", "jobs.dlq", auto_delete=True, arguments=DLQ_ARGUMENTS),
         "auto_delete is True, declared is False"),
        (HaveQueue("/", "jobs.dlq", arguments=DLQ_ARGUMENTS | {"x-queue-type": "classic"}),
         "x-queue-type is 'classic', declared is 'quorum'"),
        (HaveQueue("/", "jobs.dlq", arguments=DLQ_ARGUMENTS | {"x-message-ttl": 5}),
         "x-message-ttl is 5, declared is not set"),
    ],
)  # fmt: skip
def test_a_queue_that_is_other_than_declared_is_told_with_both_values(queue: HaveQueue, words: str) -> None:
    live = as_declared()
    (check,) = found(having(live, queues={**live.have.queues, "jobs.dlq": queue}))
    assert (check.path, check.reason) == ("queue jobs.dlq", words)
    assert "topology migrate" in check.fix


def test_an_argument_that_the_broker_ignores_is_no_difference() -> None:
    live, queue = as_declared(), HaveQueue("/", "jobs.dlq", arguments=DLQ_ARGUMENTS | {"x-team": "billing"})
    assert found(having(live, queues={**live.have.queues, "jobs.dlq": queue})) == []


@pytest.mark.parametrize(
    "effective",
    [
        {"delivery-limit": 50},
        {"overflow": "reject-publish"},
        {"dead-letter-exchange": "x"},
        {"ha-mode": "all"},
    ],
)
def test_policies_that_change_nothing_are_left_alone(effective: dict[str, Any]) -> None:
    assert found(as_declared(mails={"effective": effective, "policy": "p"})) == []


def test_what_the_broker_does_not_tell_of_policies_is_not_taken_for_good() -> None:
    (check,) = found(as_declared(mails={"effective": None}))
    assert (check.status, check.path) == ("not_probed", "policies in force on queues of mails")
    assert "no statistics of mails" in check.reason


def test_an_interrupted_migration_is_told() -> None:
    live = as_declared()
    holding = HaveQueue("/", "mails.moving", arguments=DLQ_ARGUMENTS)
    (check,) = found(having(live, queues={**live.have.queues, holding.name: holding}))
    assert (check.status, check.path) == ("failed", "queue mails")
    assert "messages may wait in mails.moving" in check.reason


def test_letters_that_another_program_takes_are_told() -> None:
    check = before(DLX, DRAINED | {"jobs.dlq": QueueState(0, 2)}, evidence())
    assert check is not None
    assert check.status == "failed"
    assert "2 consumers take letters from jobs.dlq" in check.reason


def test_a_missing_policy_of_ours_is_missed() -> None:
    live = having(as_declared(jobs={"policy": None, "effective": {}}), policies=())
    (check,) = found(live)
    assert (check.path, check.reason) == ("queue jobs: policy 'redrive.jobs'", "it is missing")


def test_a_policy_of_ours_that_says_something_else_is_told() -> None:
    live = having(
        as_declared(), policies=(HavePolicy("/", "redrive.jobs", "^jobs$", {"message-ttl": 60_000}),)
    )
    (check,) = found(live)
    assert check.reason == "it says {'message-ttl': 60000}"


def test_a_consumer_timeout_that_an_old_broker_does_not_take_is_told() -> None:
    (check,) = found(as_declared("3.11.4"))
    assert "takes no consumer-timeout from a policy" in check.reason
    assert found(as_declared("3.12.0")) == []


def test_a_binding_to_what_is_missing_is_not_said_beside_it() -> None:
    live = as_declared()
    have, bindings = live.have, live.have.bindings or ()
    gone = having(
        dataclasses.replace(live, queues={k: v for k, v in live.queues.items() if k != "jobs.dlq"}),
        queues={k: v for k, v in have.queues.items() if k != "jobs.dlq"},
        bindings=frozenset(b for b in bindings if b.destination != "jobs.dlq"),
    )
    assert [check.path for check in found(gone)] == ["queue jobs.dlq"]


def test_strangers_bindings_are_not_ours_to_judge() -> None:
    live = as_declared()
    bindings = {*(live.have.bindings or ()), HaveBinding("jobs.dlx", "audit", "queue", "jobs")}
    more = having(live, bindings=frozenset(bindings))
    assert found(more) == []


def test_an_old_release_and_an_alarm_fail_and_what_may_not_be_seen_is_not_probed() -> None:
    old = dataclasses.replace(as_declared("3.9.29"), alarms=("memory alarm on rabbit@a",))
    assert [check.status for check in check_broker(old)] == ["failed", "failed"]
    blind = having(dataclasses.replace(old, alarms=None), version="3.10.8")
    assert [check.status for check in check_broker(blind)] == ["ok", "not_probed"]


def test_stuck_dead_letters_are_told_with_what_they_wait_for() -> None:
    assert list(check_stuck(ENTITIES, {}, (), OWNERS)) == []
    (check,) = check_stuck(ENTITIES, {"jobs": 2}, (), OWNERS)
    assert check.reason == "2 wait; a queue behind exchange jobs.dlx is missing, full or without a majority"


JOBS_DLX, DLX, DUE, _ = dead_letter_legs(TOPOLOGY.queues[0])
STEP = list(ladder_legs(TOPOLOGY.queues[0], RUN, 1.0))[2]
DRAINED = {name: QueueState(0, 1) for name in ("jobs.dlq", UNROUTED_DLQ, "jobs")}


def evidence(**changes: Any) -> Evidence:
    return dataclasses.replace(Evidence(as_declared(), {}, {}, frozenset(), 60.0), **changes)


def test_a_probe_is_sent_where_it_cannot_get_stuck() -> None:
    assert [before(leg, DRAINED, evidence()) for leg in (JOBS_DLX, DLX, DUE, STEP)] == [None] * 4


@pytest.mark.parametrize(
    ("leg", "counts", "changes", "words"),
    [
        (JOBS_DLX, {"jobs": QueueState(0, 0)}, {}, "no worker consumes jobs"),
        (JOBS_DLX, {"jobs": QueueState(101, 1)}, {}, "101 jobs wait in jobs"),
        (DLX, {"jobs.dlq": QueueState(0, 0)}, {}, "no consumer drains jobs.dlq"),
        (DLX, {UNROUTED_DLQ: QueueState(0, 0)}, {}, f"no consumer drains {UNROUTED_DLQ}"),
        (STEP, {}, {"wait_s": 0.9}, "its delay of 1 s is over --wait 0.9"),
        (STEP, {}, {"live": dataclasses.replace(as_declared(), alarms=("disk alarm on a",))}, "disk alarm"),
    ],
)
def test_or_it_is_said_why_not(
    leg: Leg, counts: dict[str, QueueState], changes: dict[str, Any], words: str
) -> None:
    check = before(leg, DRAINED | counts, evidence(**changes))
    assert check is not None
    assert check.status == "not_probed"
    assert words in check.reason


def test_a_probe_that_can_overtake_is_sent_behind_any_number_of_jobs() -> None:
    counts = DRAINED | {"jobs": QueueState(5_000, 1)}
    assert before(JOBS_DLX, counts, evidence(overtaken=frozenset({"jobs"}))) is None


@pytest.mark.parametrize(
    ("leg", "queue", "deaths", "seconds", "words"),
    [
        (JOBS_DLX, "jobs.dlq", (("jobs", "expired"),), 9.0, None),
        (DLX, "jobs.dlq", (), 0.1, None),
        (STEP, "", (("jobs.retry.1s", "expired"),), 2.1, None),
        (STEP, "", (("jobs.retry.1s", "expired"),), 2.2, "came late"),
        (STEP, "", (("jobs.retry.1s", "expired"),), 0.99, "came early"),
        (STEP, "", (("jobs.retry.500ms", "expired"),), 1.1, "did not pass jobs.retry.1s"),
        (STEP, "", (), 0.0, "it came from no queue at all"),
        (DLX, UNROUTED_DLQ, (), 0.1, f"came out in {UNROUTED_DLQ}: no binding on its way took its key"),
    ],
)
def test_an_arrival_is_ok_only_at_its_place_by_its_way_and_in_time(
    leg: Leg, queue: str, deaths: tuple[tuple[str, str], ...], seconds: float, words: str | None
) -> None:
    check = arrived(leg, Arrival(RUN, queue, deaths), seconds, evidence())
    assert check.status == ("ok" if words is None else "failed")
    assert (words or "") in check.reason


def test_a_probe_behind_jobs_is_no_failure_and_one_that_vanished_is() -> None:
    behind = absent(JOBS_DLX, 10, {"jobs": QueueState(7, 1)}, evidence())
    vanished = absent(JOBS_DLX, 10, {"jobs": QueueState(0, 1)}, evidence())
    assert (behind.status, vanished.status) == ("not_probed", "failed")


def test_a_probe_of_a_step_needs_the_steps_it_passes_and_those_below() -> None:
    for leg in list(ladder_legs(TOPOLOGY.queues[0], RUN, 1.0))[:3]:
        assert set(leg.needs) == {
            *(f"jobs.retry.{delay}" for delay in ("250ms", "500ms", "1s")),
            *("jobs.due", UNROUTED, UNROUTED_DLQ),
        }


def test_queues_that_share_a_ladder_have_it_probed_once_and_no_probe_has_a_work_queues_key() -> None:
    shared = Topology(tuple(WorkQueue(name, Ladder(steps=2, shared="common")) for name in ("a", "b")))
    (only,) = ladders(shared)
    legs = list(ladder_legs(only, RUN, 1.0))
    assert [leg.path for leg in legs[:2]] == [
        "common.retry.250ms → common.due", "common.retry.500ms → common.due"
    ]  # fmt: skip
    assert [leg.routing_key for leg in legs[:2]] == [
        f"2x250.{bits}.redrive-probe-{RUN}" for bits in ("0.1", "1.0")
    ]
    assert way_out(only, RUN).routing_key == f"2x250.*.*.redrive-probe-{RUN}"
