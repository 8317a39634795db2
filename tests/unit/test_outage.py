"""How often the ledger knocks at a Postgres that is away, and how long it mistrusts other workers' leases."""

from __future__ import annotations

import logging

import pytest

from workers.outage import STEADY_S, Outage
from workers.watching import SETTLE_S, Watch


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_long_outage_is_said_in_few_lines_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    outage = Outage("host:5432/db", clock)
    with caplog.at_level(logging.INFO):
        news = []
        for _ in range(720):
            news.append(outage.failed(OSError("connection refused")))
            clock.now += outage.pause_s()
        outage.over()
    assert news == [True] + [False] * 719
    assert len(caplog.messages) < 15
    assert caplog.messages[0] == (
        "waiting for the database at host:5432/db, consuming nothing: connection refused"
    )
    assert [text for text in caplog.messages if "is back" in text] == [caplog.messages[-1]]


def test_a_database_that_takes_connections_and_no_writes_is_one_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    outage = Outage("host:5432/db", clock)
    pauses = []
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            assert outage.failed(OSError("no space left on device"))
            pauses.append(outage.pause_s())
            clock.now += pauses[-1]
            outage.over()
    assert min(pauses[10:]) >= 2.5, "the pauses grow all the same"
    assert len(caplog.messages) < 15
    clock.now += STEADY_S
    outage.failed(OSError("no space left on device"))
    assert outage.pause_s() < 1, "a new outage"
    assert outage.lasts_s == 0


def test_after_an_outage_leases_are_renewed_first_and_others_mistrusted_for_a_while() -> None:
    clock = Clock()
    watch = Watch(renew_s=10, lease_s=30, clock=clock)
    assert (watch.renewal_due, watch.sweep_due, watch.doubt_s) == (False, False, 0)
    clock.now += 30
    assert (watch.renewal_due, watch.sweep_due) == (True, True)
    watch.back()
    assert (watch.renewal_due, watch.sweep_due, watch.doubt_s) == (True, False, SETTLE_S)
    clock.now += SETTLE_S
    assert (watch.sweep_due, watch.doubt_s) == (False, 0)
    clock.now += 15
    assert watch.sweep_due
