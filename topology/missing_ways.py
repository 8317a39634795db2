"""Exchanges and bindings that a broker lacks: where a message would leave its way. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from topology.entities import Entities
from topology.plan.have import HaveBinding


class MissingWay(NamedTuple):
    """`kind` is `exchange` or `binding`."""

    kind: str
    name: str


def missing_ways(
    entities: Entities,
    queues: Collection[str],
    exchanges: Collection[str],
    bindings: Collection[HaveBinding] | None,
) -> Iterator[MissingWay]:
    """Exchanges that are missing, and bindings between what is there. Without the first, dead letters and
    retries stay in their queue; without the second they end in the catch-all queue.

    Args:
        queues: names of those that are there, as `exchanges`.
        bindings: None where they cannot be seen: then none is told.
    """
    for exchange in entities.exchanges:
        if exchange.name not in exchanges:
            yield MissingWay("exchange", exchange.name)
    if bindings is None:
        return
    for want in entities.bindings:
        way = HaveBinding(want.source, want.destination, want.kind, want.routing_key)
        ends = queues if want.kind == "queue" else exchanges
        if want.source in exchanges and want.destination in ends and way not in bindings:
            yield MissingWay("binding", want.text)
