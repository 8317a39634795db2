"""However large the letters, what the consumer holds of them is bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pytest

from tests.support.graveyard import Graveyard, plain
from tests.support.memory import peak_bytes, rss_bytes
from tests.support.shared import Places
from tests.support.waiting import eventually

MIB = 1024 * 1024
DLQS = ("orders.dlq", "mails.dlq")
LOCK = 43
# No letter can be stored while the test holds the lock: they pile up in hand.
HOLD_BATCHES = (
    f"""create function hold_batch() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock_shared({LOCK}); return null; end $$""",
    """create trigger hold_batch before insert on redrive.dead_letters
    for each statement execute function hold_batch()""",
)


@pytest.fixture
def graveyard(places: Places) -> Iterator[Graveyard]:
    with places.fresh() as (vhost, database, processes):
        yield Graveyard(vhost, database, processes)


def test_letters_of_any_size_are_held_within_the_bound_while_none_can_be_stored(graveyard: Graveyard) -> None:
    for statement in HOLD_BATCHES:
        graveyard.database.execute(statement)
    process = graveyard.start(ready=False, REDRIVE_DLQ_HELD_MIB="8")
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
