"""All that `topology verify` does, in its order."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import uuid4

from topology.address import AmqpAddress
from topology.entities import Entities, compile_topology
from topology.management import Management
from topology.names import UNROUTED, due
from topology.spec import Topology
from topology.stuck import surely_stuck
from topology.verify.check import Check, ok
from topology.verify.condition import check_broker, check_queues, check_stuck
from topology.verify.declared import Owners, check_bindings, check_entities
from topology.verify.legs import dead_letter_legs, ladder_legs, ladders, way_out
from topology.verify.live import Live, LiveQueue, read_live, read_queues
from topology.verify.policies import check_policies
from topology.verify.probing import Probing
from topology.verify.verdict import OVERTAKING_RELEASE, Evidence


@dataclass
class Verification:
    """One run on one vhost. `probing` is there once probes are under way.

    Args:
        topology: the queues to verify, and no others.
        wait_s: ladder steps of a longer delay (in real time) get no probe.
    """

    management: Management
    address: AmqpAddress
    topology: Topology
    time_scale: float
    wait_s: float
    probing: Probing | None = None

    def run(self) -> list[Check]:
        """Every check, those of the broker first, then what is declared, then the probes.

        Raises:
            ManagementError: the management API gives no usable answer.
            BrokerError: the broker is away.
        """
        entities, owners = compile_topology(self.topology, self.time_scale), Owners.in_(self.topology)
        live = read_live(self.management, self.address.vhost, entities)
        read_at = time.monotonic()
        broken = list(check_entities(entities, live.have, owners))
        wrong = [
            *broken,
            *check_bindings(entities, live.have, owners),
            *check_policies(self.topology, entities, live, owners),
            *check_queues(entities, live, owners),
        ]
        evidence = Evidence(live, _by_name(broken), _by_name(wrong), self._overtaken(live), self.wait_s)
        probed = self._probe(evidence)
        stuck = list(self._stuck(entities, live, read_at, wrong, owners))
        found = [*wrong, *stuck]
        return [*check_broker(live), *found, *_as_declared(self.topology, entities, found, owners), *probed]

    def _probe(self, evidence: Evidence) -> list[Check]:
        run, queues = uuid4(), self.topology.queues
        one_each = ladders(self.topology)
        legs = [leg for queue in queues for leg in dead_letter_legs(queue)]
        legs += [leg for queue in one_each for leg in ladder_legs(queue, run, self.time_scale)]
        ways = [
            way_out(queue, run)
            for queue in one_each
            if due(queue.name, queue.ladder) in evidence.live.have.exchanges
        ]
        self.probing = Probing(self.address, legs, ways, evidence)
        return asyncio.run(self.probing.run())

    def _overtaken(self, live: Live) -> frozenset[str]:
        quorum = live.have.release() >= OVERTAKING_RELEASE
        return frozenset(
            queue.name
            for queue in self.topology.queues
            if (quorum if queue.type == "quorum" else queue.max_priority is not None)
        )

    def _stuck(
        self, entities: Entities, live: Live, read_at: float, wrong: Iterable[Check], owners: Owners
    ) -> Iterator[Check]:
        ours = {queue.name for queue in entities.queues}

        def counts(queues: Mapping[str, LiveQueue]) -> dict[str, int]:
            return {name: queue.stuck for name, queue in queues.items() if name in ours}

        stuck = surely_stuck(
            lambda: counts(read_queues(self.management, self.address.vhost)), (counts(live.queues), read_at)
        )
        names = {name for check in wrong for name in check.about}
        yield from check_stuck(entities, stuck, names, owners)


def _by_name(checks: Iterable[Check]) -> Mapping[str, list[Check]]:
    found: dict[str, list[Check]] = defaultdict(list)
    for check in checks:
        for name in check.about:
            found[name].append(check)
    return found


def _as_declared(
    topology: Topology, entities: Entities, found: Iterable[Check], owners: Owners
) -> Iterator[Check]:
    """An OK for each work queue, and the catch-all, of which nothing was found."""
    bad = {check.queue for check in found}
    for name in (*(queue.name for queue in topology.queues), ""):
        if name in bad:
            continue
        queues = sum(owners.of(queue.name) == name for queue in entities.queues)
        exchanges = sum(owners.of(exchange.name) == name for exchange in entities.exchanges)
        bindings = sum(owners.of(binding.source) == name for binding in entities.bindings)
        what = f"queues: {queues}, exchanges: {exchanges}, bindings: {bindings}, and the policies in force"
        yield ok(f"{name or UNROUTED} as declared ({what})", name)
