"""What becomes of a stored letter and of decisions under a newer rule."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dlq_consumer.fingerprint import group_of
from dlq_consumer.regrouping import group_now
from storage.heirs import Decided, joined
from storage.regrouping import StoredLetter

SOON, LATER = datetime(2030, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
OPEN, RESOLVED = Decided(), Decided("resolved", "ada")
FOR_GOOD, UNTIL_SOON, UNTIL_LATER = (
    Decided("ignored", "ada", ignored_until=until) for until in (None, SOON, LATER)
)


@pytest.mark.parametrize(
    ("one", "other", "holds"),
    [
        (OPEN, RESOLVED, OPEN),
        (FOR_GOOD, OPEN, OPEN),
        (UNTIL_SOON, RESOLVED, RESOLVED),
        (FOR_GOOD, UNTIL_LATER, UNTIL_LATER),
        (UNTIL_LATER, UNTIL_SOON, UNTIL_SOON),
        (FOR_GOOD, FOR_GOOD, FOR_GOOD),
    ],
)
def test_of_two_groups_the_state_that_hides_least_holds(one: Decided, other: Decided, holds: Decided) -> None:
    assert joined(one, other) == joined(other, one) == holds


def test_the_frame_comes_from_the_traceback_and_without_one_from_the_group() -> None:
    traceback = 'Traceback (most recent call last):\n  File "/a/shop/b.py", line 1, in f\nE: no'
    letter = StoredLetter(1, "q", "shop.t", "exception", "E0x7f01", traceback, "old.py:g")
    same = {"queue": "q", "task": "shop.t", "reason": "exception", "exception_type": "E*"}
    assert group_now(letter) == group_of(**same, frame="shop/b.py:f")
    gone = StoredLetter(1, "q", "shop.t", "exception", "E0x7f01", None, "old.py:g")
    assert group_now(gone) == group_of(**same, frame="old.py:g")
