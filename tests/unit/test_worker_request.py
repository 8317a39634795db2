"""What the main process makes of a run of which it got no report."""

from __future__ import annotations

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded, WorkerLostError
from billiard.pool import MaybeEncodingError

from workers.outcomes import Crashed, Dead
from workers.request import RedriveRequest


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (MaybeEncodingError(MemoryError(), "a report"), Crashed, "memory"),
        (MaybeEncodingError(ValueError("x"), "a report"), Dead, "exception"),
        (MemoryError(), Crashed, "memory"),
        (SoftTimeLimitExceeded(1), Dead, "soft_timeout"),
        (TimeLimitExceeded(1), Crashed, "hard_timeout"),
        (WorkerLostError("gone"), Crashed, "worker_lost"),
    ],
)
def test_an_end_without_a_report_has_its_reason(error: Exception, kind: type, reason: str) -> None:
    request = RedriveRequest.__new__(RedriveRequest)

    outcome = request._judge(error, "a traceback")

    assert isinstance(outcome, kind)
    assert isinstance(outcome, Dead | Crashed)
    assert (outcome.reason, outcome.failure and outcome.failure.traceback) == (reason, "a traceback")
