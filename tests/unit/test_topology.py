"""The compiled topology holds what nothing may take from it, and a wrong spec names its field."""

import pytest

from topology.catalogue import TOPOLOGY, SyncInventory
from topology.entities import compile_topology
from topology.errors import InvalidTopologyError, UnknownQueueError
from topology.names import UNROUTED_DLQ, dead_letter_queues, work_queue_of
from topology.spec import JobType, Ladder, Topology, WorkQueue

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
    assert work_queue_of(TOPOLOGY, "payments.retry.250ms") == "payments"
    assert work_queue_of(TOPOLOGY, "payments.dlq") == "payments"
    assert work_queue_of(TOPOLOGY, "somebody.else") is None


@pytest.mark.parametrize(
    ("name", "words"),
    [("", "name"), ("a b", "name"), ("a..b", "name"), ("amq.x", "reserved"), ("redrive.x", "reserved"),
     ("x" * 240, "bytes")],
)  # fmt: skip
def test_a_bad_queue_name_is_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidTopologyError, match=words):
        WorkQueue(name)


@pytest.mark.parametrize(("steps", "longest"), [(1, 231), (12, 231), (13, 229), (20, 215)])
def test_the_longest_name_makes_no_name_or_key_that_amqp_cannot_carry(steps: int, longest: int) -> None:
    ladder = Ladder(tick_ms=250, steps=steps)
    entities = compile_topology(Topology((WorkQueue("x" * longest, ladder),)))

    names = [queue.name for queue in entities.queues] + [exchange.name for exchange in entities.exchanges]
    keys = [binding.routing_key for binding in entities.bindings]
    assert max(len(word) for word in (*names, *keys)) <= 255
    with pytest.raises(InvalidTopologyError, match=f"over {longest} bytes"):
        WorkQueue("x" * (longest + 1), ladder)


@pytest.mark.parametrize("field", ["delivery_limit", "prefetch", "watermark"])
def test_a_number_out_of_range_names_queue_and_field(field: str) -> None:
    with pytest.raises(InvalidTopologyError, match=f"'payments': {field} is 0"):
        WorkQueue("payments", **{field: 0})  # type: ignore[arg-type]


def test_two_queues_that_derive_one_name_are_refused() -> None:
    with pytest.raises(InvalidTopologyError, match=r"both derive 'a\.dlq'"):
        Topology((WorkQueue("a"), WorkQueue("a.dlq")))


def test_a_job_for_an_unknown_queue_is_refused() -> None:
    with pytest.raises(InvalidTopologyError, match="'emial' is not in the topology"):
        Topology((WorkQueue("email"),), (JobType("send", "emial", SyncInventory),))


def test_an_unknown_queue_is_named_with_those_that_exist() -> None:
    with pytest.raises(UnknownQueueError, match="no work queue 'emial'; there are: payments, "):
        TOPOLOGY.queue("emial")


@pytest.mark.parametrize(("tick_ms", "steps"), [(0, 12), (250, 0), (250, 21)])
def test_a_ladder_out_of_bounds_is_refused(tick_ms: int, steps: int) -> None:
    with pytest.raises(InvalidTopologyError, match="ladder"):
        Ladder(tick_ms, steps)
