"""Pauses between connections to the broker."""

from __future__ import annotations

from workers.pacing import MOST_S, STEADY_S, Pace


def test_connections_that_fail_at_once_are_made_more_and_more_slowly() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    pauses = []
    for _ in range(10):
        pauses.append(pace.pause_s())
        pace.connected()
        now += 0.1
    assert pauses[0] == 0, "the first is made at once"
    assert 0.25 <= pauses[1] <= 0.5
    assert all(MOST_S / 2 <= pause <= MOST_S for pause in pauses[6:])
    assert len(set(pauses)) == len(pauses), "drawn by lot"
    now += STEADY_S
    assert pace.pause_s() <= 0.5
