"""The compiled topology holds what nothing may take from it, and a wrong spec names its field."""

import re

import pytest

from topology.catalogue import TOPOLOGY
from topology.entities import Argument, Entities, compile_topology
from topology.errors import InvalidTopologyError, UnknownQueueError
from topology.kombu_entities import task_queues
from topology.names import UNROUTED_DLQ, dead_letter_queues, work_queues_of
from topology.spec import Ladder, Topology, WorkQueue

ENTITIES = compile_topology(TOPOLOGY)
QUEUES = {queue.name: queue.arguments for queue in ENTITIES.queues}


def test_no_queue_can_forget() -> None:
    for name, arguments in QUEUES.items():
        assert arguments["x-queue-type"] == "quorum", name
        assert not {"x-max-length", "x-max-length-bytes", "x-expires"} & arguments.keys(), name


def test_a_queue_with_a_ttl_or_a_delivery_limit_has_a_dead_letter_exchange_that_is_declared() -> None:
    exchanges = {exchange.name for exchange in ENTITIES.exchanges}
    for name, arguments in QUEUES.items():
        if name in dead_letter_queues(TOPOLOGY):
            continue
        assert arguments["x-dead-letter-exchange"] in exchanges, name
        assert arguments["x-dead-letter-strategy"] == "at-least-once", name
        assert arguments["x-overflow"] == "reject-publish", name


def test_a_dead_letter_queue_has_no_ttl_and_no_limit_that_can_be_reached() -> None:
    for name in dead_letter_queues(TOPOLOGY):
        assert QUEUES[name] == {"x-queue-type": "quorum", "x-delivery-limit": 2_000_000_000}


def test_each_exchange_that_dead_letters_pass_has_the_alternate_exchange() -> None:
    targets = {arguments.get("x-dead-letter-exchange") for arguments in QUEUES.values()} - {None}
    for exchange in ENTITIES.exchanges:
        if exchange.name in targets:
            assert exchange.arguments == {"alternate-exchange": "redrive.unrouted"}, exchange.name
    assert ("redrive.unrouted", UNROUTED_DLQ) in {(b.source, b.destination) for b in ENTITIES.bindings}


def test_a_dead_letter_key_is_explicit_and_bound() -> None:
    bound = {(b.source, b.routing_key, b.destination) for b in ENTITIES.bindings}
    for queue in TOPOLOGY.queues:
        arguments = QUEUES[queue.name]
        exchange, key = arguments["x-dead-letter-exchange"], arguments["x-dead-letter-routing-key"]
        assert (exchange, key, f"{queue.name}.dlq") in bound


def test_the_time_scale_shrinks_ttls_and_leaves_names() -> None:
    scaled = {q.name: q.arguments for q in compile_topology(TOPOLOGY, 0.1).queues}

    assert scaled.keys() == QUEUES.keys()
    assert (
        QUEUES["payments.retry.512s"]["x-message-ttl"],
        scaled["payments.retry.512s"]["x-message-ttl"],
    ) == (
        512_000,
        51_200,
    )


def test_a_time_scale_that_leaves_no_ttl_is_refused() -> None:
    with pytest.raises(InvalidTopologyError, match="time scale"):
        compile_topology(TOPOLOGY, 0.001)


def test_ladder_names_lead_back_to_their_work_queue() -> None:
    assert work_queues_of(TOPOLOGY, "payments.retry.250ms") == ("payments",)
    assert work_queues_of(TOPOLOGY, "payments.dlq") == ("payments",)
    assert work_queues_of(TOPOLOGY, "somebody.else") == ()


def test_a_shared_ladder_is_of_each_queue_that_shares_it() -> None:
    ladder = Ladder(shared="slow")
    topology = Topology((WorkQueue("a", ladder), WorkQueue("b", ladder), WorkQueue("c")))
    assert work_queues_of(topology, "slow.retry.8s") == ("a", "b")
    assert work_queues_of(topology, "a.dlq") == ("a",)


def test_an_unknown_queue_is_named_with_those_that_exist() -> None:
    with pytest.raises(UnknownQueueError, match="no work queue 'emial'; there are: payments, "):
        TOPOLOGY.queue("emial")


def compiled(*queues: WorkQueue) -> Entities:
    return compile_topology(Topology(queues))


def arguments(entities: Entities, name: str) -> dict[str, Argument]:
    (found,) = [queue.arguments for queue in entities.queues if queue.name == name]
    return found


def test_a_quorum_work_queue_has_every_argument_of_the_design() -> None:
    assert arguments(compiled(WorkQueue("jobs", delivery_limit=7)), "jobs") == {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "jobs.dlx",
        "x-dead-letter-routing-key": "jobs",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-delivery-limit": 7,
    }


def test_a_classic_work_queue_has_the_arguments_that_it_knows_and_quorum_queues_around_it() -> None:
    entities = compiled(
        WorkQueue("jobs", Ladder(steps=2), type="classic", classic_reason="priorities", max_priority=5)
    )

    assert arguments(entities, "jobs") == {
        "x-queue-type": "classic",
        "x-dead-letter-exchange": "jobs.dlx",
        "x-dead-letter-routing-key": "jobs",
        "x-max-priority": 5,
    }
    assert {queue.type for queue in entities.queues if queue.name != "jobs"} == {"quorum"}


def test_a_single_active_consumer_is_an_argument() -> None:
    alone = compiled(WorkQueue("jobs", single_active_consumer=True))
    assert arguments(alone, "jobs")["x-single-active-consumer"] is True
    assert "x-single-active-consumer" not in QUEUES["payments"]


def test_what_may_change_without_a_migration_is_one_policy_of_exactly_that_queue() -> None:
    entities = compiled(
        WorkQueue("a.jobs", message_ttl_s=0.5, consumer_timeout_s=3_600, time_limit_s=3_000),
        WorkQueue("b", message_ttl_s=60),
        WorkQueue("c"),
    )

    a, b = entities.policies
    assert (a.name, a.apply_to, a.priority) == ("redrive.a.jobs", "queues", 10)
    assert a.definition == {"message-ttl": 500, "consumer-timeout": 3_600_000}
    assert (b.name, b.definition) == ("redrive.b", {"message-ttl": 60_000})
    matched = [queue.name for queue in entities.queues if re.search(a.pattern, queue.name)]
    assert matched == ["a.jobs"]
    assert re.search(a.pattern, "axjobs") is None


def test_a_shared_ladder_is_declared_once_and_leads_to_each_of_its_queues() -> None:
    ladder = Ladder(steps=3, shared="slow")
    entities = compiled(WorkQueue("a", ladder), WorkQueue("b", ladder), WorkQueue("own", Ladder(steps=1)))

    steps = [queue.name for queue in entities.queues if ".retry." in queue.name]
    assert steps == ["slow.retry.250ms", "slow.retry.500ms", "slow.retry.1s", "own.retry.250ms"]
    ends = {(b.routing_key, b.destination) for b in entities.bindings if b.source == "slow.due"}
    assert ends == {("3x250.*.*.*.a", "a"), ("3x250.*.*.*.b", "b")}


def test_nothing_refers_to_what_is_declared_after_it() -> None:
    """Declared one by one, a queue that exists has its exchange, and a binding has both its ends."""
    ladder = Ladder(steps=2, shared="slow")
    entities = compiled(WorkQueue("a", ladder), WorkQueue("b", ladder), WorkQueue("c", Ladder(steps=2)))

    declared: set[str] = set()
    for exchange in entities.exchanges:
        assert exchange.arguments.get("alternate-exchange", "redrive.unrouted") in {*declared, exchange.name}
        declared.add(exchange.name)
    for queue in entities.queues:
        assert queue.arguments.get("x-dead-letter-exchange", "redrive.unrouted") in declared
    names = {queue.name for queue in entities.queues}
    for binding in entities.bindings:
        assert binding.source in declared
        assert binding.destination in (names if binding.kind == "queue" else declared)


def test_celery_gets_each_queue_with_its_arguments_and_declares_none_of_it() -> None:
    topology = Topology((
        WorkQueue("fast", max_priority=3, type="classic", classic_reason="x", single_active_consumer=True),
        WorkQueue("slow", Ladder(steps=2)),
    ))  # fmt: skip
    entities = compile_topology(topology)

    queues = task_queues(topology)

    assert [queue.name for queue in queues] == ["fast", "slow"]
    for queue in queues:
        assert queue.queue_arguments == arguments(entities, queue.name)
        assert (queue.no_declare, queue.exchange.no_declare) == (True, True)
        assert (queue.exchange.name, queue.routing_key) == ("", queue.name)
