"""Messages that cannot go on, on a real broker."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.support.vhosts import Vhost
from topology.address import AmqpAddress
from topology.delivery import TaskMessage
from topology.headers import PUBLISH
from topology.messages import Message
from topology.publisher import Publisher
from topology.spec import WorkQueue
from topology.wire import properties
from workers.arrival import Arrival
from workers.returning import Returns, StaleArrivalError

pytestmark = pytest.mark.anyio
QUEUE = WorkQueue("work")


def build(token: str, due_ms: int | None) -> Message:
    return Message(properties(headers={PUBLISH: token}).encode(), b"{}")


async def test_what_the_broker_delivers_again_is_tried_no_longer(vhost: Vhost) -> None:
    """Else each lost connection would leave one more behind, for as long as the ladder is missing."""
    publisher = Publisher(AmqpAddress.parse(vhost.amqp_url), "test returning")
    await publisher.start()
    held_back: list[bool] = []
    returns = Returns(publisher, 1.0, lambda arrival: not held_back, lambda: held_back.append(True))
    task = TaskMessage("job", "t", [], {}, {}, 2)
    arrival = Arrival(cast(Any, None), task, QUEUE, b"", b"", session=1, limit_s=60)
    try:
        with pytest.raises(StaleArrivalError):
            await returns.send(arrival, QUEUE, 1.0, build)  # there is no ladder
    finally:
        await publisher.close()
    assert held_back == [True]
