"""A consumer's batch that cannot be committed for as long as a test holds a lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.graveyard import Graveyard
from tests.support.processes import Process
from tests.support.waiting import eventually

LOCK = 42


def hold_batches(graveyard: Graveyard, when: str = "after") -> None:
    """From now on each batch waits: its rows written and not committed, or `before` the first is written."""
    graveyard.database.execute(
        "create function hold_batch() returns trigger language plpgsql as"
        f" $$ begin perform pg_advisory_xact_lock_shared({LOCK}); return null; end $$"
    )
    graveyard.database.execute(
        f"create trigger hold_batch {when} insert on redrive.dead_letters"
        " for each statement execute function hold_batch()"
    )


@contextmanager
def a_batch_in_hand(graveyard: Graveyard, **settings: str) -> Iterator[Process]:
    """A consumer whose batch is written and not committed; it commits when the block ends."""
    hold_batches(graveyard)
    with graveyard.holding(LOCK):
        process = graveyard.start(ready=False, **settings)
        eventually(lambda: graveyard.waits_for(LOCK), 30, "a batch waits before its commit")
        yield process
