"""The arrival table, row by row."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from storage.claims import JobRow, Waiting
from topology.headers import Attempt
from workers.verdicts import (
    UNBEGUN_S,
    Adopt,
    Believe,
    Claim,
    Duplicate,
    RejectAgain,
    Run,
    SendOn,
    TakeOver,
    Verdict,
    Wait,
    verdict,
)

OURS, THEIRS = uuid4(), uuid4()
WAITING = Waiting(retries=2, delay_ms=1000, waited_s=0.5)


def row(
    state: str, generation: int = 1, attempt: int = 2, lease_left_s: float = 0.0, ours: bool = False
) -> JobRow:
    token = (OURS if ours else THEIRS) if state == "RUNNING" else None
    return JobRow(state, generation, attempt, token, lease_left_s, WAITING)


UNBEGUN = replace(row("RUNNING", lease_left_s=3), begun=False)
CASES: list[tuple[str, JobRow | None, Attempt, Verdict]] = [
    ("no row", None, Attempt(1, 1), Adopt()),
    ("pending, this attempt", row("PENDING"), Attempt(1, 2), Claim()),
    ("queued, this attempt", row("QUEUED"), Attempt(1, 2), Claim()),
    ("retrying, this attempt", row("RETRYING"), Attempt(1, 2), Claim()),
    ("waiting for a later attempt", row("RETRYING"), Attempt(1, 1), SendOn(Attempt(1, 2), WAITING)),
    ("waiting for an earlier one", row("QUEUED"), Attempt(1, 3), Believe()),
    ("waiting in an earlier generation", row("RETRYING"), Attempt(2, 1), Believe()),
    ("waiting in a later generation", row("QUEUED", 2, 1), Attempt(1, 5), Duplicate()),
    ("running elsewhere", row("RUNNING", lease_left_s=7.5), Attempt(1, 2), Wait(7.5)),
    ("running elsewhere, a later attempt", row("RUNNING", lease_left_s=7.5), Attempt(1, 1), Wait(7.5)),
    ("running elsewhere, an earlier generation", row("RUNNING", lease_left_s=3), Attempt(2, 1), Wait(3.0)),
    ("claimed elsewhere, not begun", replace(UNBEGUN, lease_left_s=20.0), Attempt(1, 2), Wait(UNBEGUN_S)),
    ("claimed elsewhere, its lease nearly over", UNBEGUN, Attempt(1, 2), Wait(3.0)),
    ("running, lease expired", row("RUNNING", lease_left_s=-1), Attempt(1, 2), TakeOver(THEIRS)),
    (
        "running, lease expired, a later attempt",
        row("RUNNING", lease_left_s=-1),
        Attempt(1, 1),
        TakeOver(THEIRS),
    ),
    ("running, lease expired, earlier generation", row("RUNNING", lease_left_s=-1), Attempt(2, 1), Believe()),
    ("running, a later generation", row("RUNNING", 2, 1, -1), Attempt(1, 9), Duplicate()),
    ("claimed by ourselves", row("RUNNING", lease_left_s=30, ours=True), Attempt(1, 2), Run()),
    ("succeeded", row("SUCCEEDED"), Attempt(1, 2), Duplicate()),
    ("succeeded, ahead", row("SUCCEEDED"), Attempt(2, 1), Duplicate()),
    ("cancelled", row("CANCELLED"), Attempt(1, 2), Duplicate()),
    ("dead", row("DEAD"), Attempt(1, 2), RejectAgain()),
    ("dead, an earlier generation", row("DEAD"), Attempt(2, 1), Believe()),
    ("dead, a later generation", row("DEAD", 2, 1), Attempt(1, 2), Duplicate()),
]


@pytest.mark.parametrize(
    ("found", "arrived", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_an_arrival_is_judged_by_its_row(found: JobRow | None, arrived: Attempt, expected: Verdict) -> None:
    assert verdict(found, arrived, OURS) == expected
