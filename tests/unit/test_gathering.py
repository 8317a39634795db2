"""A batch grows only while no pool process could wait for it."""

from __future__ import annotations

import pytest

from workers.ledger import may_gather


@pytest.mark.parametrize(
    ("held", "processes", "entries"),
    [
        (0, 4, 1),  # an idle worker
        (3, 4, 1),  # one process is idle
        (7, 4, 1),  # one will be soon
        (64, 64, 1),  # long jobs, one in each process
        (40, 4, 20),  # enough has come
        (8, 4, 24),  # all has ended
    ],
)
def test_a_batch_goes_out_at_once(held: int, processes: int, entries: int) -> None:
    assert not may_gather(held, processes, entries)


@pytest.mark.parametrize(("held", "processes", "entries"), [(40, 4, 3), (8, 4, 1), (16, 1, 7)])
def test_a_batch_waits_for_more(held: int, processes: int, entries: int) -> None:
    assert may_gather(held, processes, entries)
