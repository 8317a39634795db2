"""The sample catalogue as a former release could have had it: `payments` is a classic queue."""

from __future__ import annotations

from dataclasses import replace

from topology.catalogue import TOPOLOGY as NOW
from topology.spec import Topology

TOPOLOGY = Topology(
    tuple(
        replace(queue, type="classic", classic_reason="as it was") if queue.name == "payments" else queue
        for queue in NOW.queues
    ),
    NOW.jobs,
)
