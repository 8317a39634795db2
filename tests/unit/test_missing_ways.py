"""What a broker lacks of the ways that dead letters and retries take."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from topology.entities import compile_topology
from topology.missing_ways import missing_ways
from topology.plan.have import HaveBinding
from topology.spec import Ladder, Topology, WorkQueue

ENTITIES = compile_topology(Topology((WorkQueue("q", Ladder(tick_ms=100, steps=2)),)))
QUEUES = {queue.name for queue in ENTITIES.queues}
EXCHANGES = frozenset(exchange.name for exchange in ENTITIES.exchanges)
BINDINGS = frozenset(
    HaveBinding(each.source, each.destination, each.kind, each.routing_key) for each in ENTITIES.bindings
)


def named(
    queues: Collection[str], exchanges: Collection[str], bindings: Collection[HaveBinding] | None
) -> set[str]:
    return {way.name for way in missing_ways(ENTITIES, queues, exchanges, bindings)}


def test_a_binding_is_missing_only_between_what_is_there() -> None:
    assert named(QUEUES, EXCHANGES, BINDINGS) == set()
    lost = {each.text for each in ENTITIES.bindings if each.source in ("q.dlx", "q.due")}
    assert len(lost) == 2
    kept = frozenset(each for each in BINDINGS if each.source not in ("q.dlx", "q.due"))
    assert named(QUEUES, EXCHANGES, kept) == lost
    assert named(QUEUES - {"q", "q.dlq"}, EXCHANGES, kept) == set()
    without = named(QUEUES, EXCHANGES - {"q.dlx", "q.due"}, kept)
    assert without == {"q.dlx", "q.due"}, "and no binding of theirs"


def test_a_binding_with_arguments_is_another_and_unseen_ones_are_not_missing() -> None:
    (dead,) = (each for each in BINDINGS if each.source == "q.dlx")
    others = BINDINGS - {dead} | {dataclasses.replace(dead, arguments=True)}
    assert len(named(QUEUES, EXCHANGES, others)) == 1
    assert named(QUEUES, EXCHANGES, None) == set()
