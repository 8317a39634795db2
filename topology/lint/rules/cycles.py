"""Dead letters that come back."""

from __future__ import annotations

from collections.abc import Iterator

from topology.lint.broker import Broker
from topology.lint.codes import found
from topology.lint.cycles import cycles
from topology.lint.finding import Finding
from topology.lint.words import listed
from topology.lint.words import queue as named


def dead_letter_cycles(broker: Broker) -> Iterator[Finding]:
    """CYCLE-AUTO-DROP, CYCLE-REJECT."""
    for cycle in cycles(broker):
        more = len(cycle.queues) - len(cycle.loop)
        also = f" ({more} more queues hang in the same net of loops)" if more else ""
        if cycle.kind == "automatic":
            yield found(
                "CYCLE-AUTO-DROP",
                cycle.vhost,
                named(cycle.loop[0]),
                f"a message that goes round {listed(cycle.loop)} without a reject is dropped silently when "
                f"it comes back to a queue it died in{also}",
                "let the loop end in a queue without TTL that a consumer drains; retry by publishing anew "
                "without x-death",
                cycle.path,
            )
        else:
            yield found(
                "CYCLE-REJECT",
                cycle.vhost,
                named(cycle.loop[0]),
                f"a message that is rejected each time goes round {listed(cycle.loop)} for ever: the broker "
                f"counts, and nothing stops it{also}",
                "count attempts in the consumer, and after the last one publish to a dead-letter queue and "
                "acknowledge instead of rejecting",
                cycle.path,
            )
