"""However large the letters, what the consumer holds of them is bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import certificate
from tests.support.graveyard import Graveyard, plain
from tests.support.held_batches import LOCK, hold_batches
from tests.support.memory import peak_bytes, rss_bytes
from tests.support.proxy import TcpProxy
from tests.support.shared import Places
from tests.support.waiting import eventually

MIB = 1024 * 1024
DLQS = ("orders.dlq", "mails.dlq")


@pytest.fixture
def graveyard(places: Places) -> Iterator[Graveyard]:
    with places.fresh() as (vhost, database, processes):
        yield Graveyard(vhost, database, processes)


@pytest.fixture(params=["amqp", "amqps"])
def way(request: pytest.FixtureRequest, graveyard: Graveyard, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The consumer's settings for a broker that is reached in plain text, or by TLS."""
    if request.param == "amqp":
        yield {}
        return
    made = certificate(tmp_path)
    with TcpProxy(graveyard.vhost.amqp_url, tls=made.context()) as proxy:
        yield {"REDRIVE_AMQP_URL": proxy.url, "SSL_CERT_FILE": str(made.trusted)}


def test_letters_of_any_size_are_held_within_the_bound_while_none_can_be_stored(
    graveyard: Graveyard, way: dict[str, str]
) -> None:
    # No letter can be stored while the test holds the lock: they pile up in hand.
    hold_batches(graveyard, "before")
    process = graveyard.start(ready=False, REDRIVE_DLQ_HELD_MIB="8", **way)
    for queue in DLQS:  # with the one queue's letters in hand, it would not read that it consumes the other
        process.wait_for_log(f"draining {queue}", 30)
    with graveyard.holding(LOCK):
        for queue in DLQS:
            graveyard.publish(queue, *(plain(bytes([n]) * 3 * MIB, message_id=str(n)) for n in range(40)))
        eventually(lambda: graveyard.waits_for(LOCK), 30, "a batch waits")
        eventually(lambda: all(graveyard.depth(queue) == 0 for queue in DLQS), 30, "all are on their way")
        steady: deque[int] = deque(maxlen=20)

        def settled() -> bool:
            steady.append(rss_bytes(process.pid) // MIB)
            return len(steady) == 20 and max(steady) - min(steady) < 2

        eventually(settled, 60, "it takes no more in")
    graveyard.until_stored(80, 60)

    assert peak_bytes(process.pid) < 240 * MIB, "of 240 MiB of letters and itself"
    eventually(lambda: all(graveyard.depth(queue) == 0 for queue in DLQS), 30, "all are acked")
    assert "broker_lost" not in process.log
