"""The story's own count: all that was accepted is in exactly one place, and nothing is anywhere else."""

from __future__ import annotations

import asyncio
from collections import Counter

from dev.story.dead_letters import check_alerts
from dev.story.stage import Stage
from dev.story.telling import expect
from storage.census import take_census
from topology.address import AmqpAddress
from topology.catalogue import TOPOLOGY
from topology.depths import counts
from topology.entities import compile_topology

# What the steps before have told the third party to take.
PAYMENTS = ("payment-1", "payment-2", "payment-5")
ORDERS = ("order-4", "order-6")


def nothing_lost(stage: Stage) -> None:
    stage.tell.step("Nothing is lost, nothing is twice")
    working = [child for child in stage.stack.children if child.name.startswith(("worker", "dlq-consumer"))]
    stage.stack.stop(*working)
    stage.tell.seen(
        f"{' and '.join(child.name for child in working)} stopped, so that nobody holds a message; "
        "counted over SQL and AMQP:"
    )
    census = asyncio.run(take_census(stage.stack.urls.database))
    queues = [queue.name for queue in compile_topology(TOPOLOGY).queues]
    depths = {
        name: found.ready
        for name, found in counts(
            AmqpAddress.parse(stage.stack.urls.amqp), queues, "redrive-demo-count"
        ).items()
    }
    expect(set(census.jobs) == stage.accepted, f"the jobs {sorted(stage.accepted)}, no other", census.jobs)
    states = Counter(census.jobs.values())
    expect(states == {"SUCCEEDED": len(stage.accepted)}, "each of them SUCCEEDED by now", census.jobs)
    letters = {letter.id: letter.state for letter in census.letters}
    expected = {stage.poisoned_letter: "replayed", stage.garbage_letter: "open"}
    expect(letters == expected, f"letters {expected}", census.letters)
    waiting = {name: depth for name, depth in depths.items() if depth}
    expect(not waiting, "every queue to be empty", waiting)
    expect(census.outbox == 0, "an empty outbox", census.outbox)
    check_alerts(stage)
    paid = Counter(each["payment_id"] for each in stage.third_party.payments())
    charged = Counter(each["body"]["order_id"] for each in stage.third_party.charges())
    expect(paid == Counter(PAYMENTS), f"payments {PAYMENTS}, each once", paid)
    expect(charged == Counter(ORDERS), f"charges of {ORDERS}, each once", charged)
    total = len(stage.accepted) + 1
    stage.tell.seen(
        f"accepted {total} ({len(stage.accepted)} jobs over HTTP, 1 message over AMQP) = "
        f"{states['SUCCEEDED']} SUCCEEDED + 1 open letter + 0 in the outbox + 0 in {len(queues)} queues"
    )
    stage.tell.seen(
        f"at the third party {len(PAYMENTS)} payments and {len(ORDERS)} charges, each once; "
        f"at the sink {len(stage.alerts_expected)} alerts, one for each group of letters"
    )
