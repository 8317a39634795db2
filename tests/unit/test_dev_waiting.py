"""Waiting for what is to be seen: until it is, until the deadline, or until it has become pointless."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dev.errors import DevError
from dev.waiting import NotYet, WaitedInVain, wait_for


def after(tries: int) -> Callable[[], str]:
    """A question that is answered at the try after so many."""
    left = [tries]

    def ask() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise NotYet(f"{left[0] + 1} to go")
        return "there"

    return ask


def test_it_returns_the_answer_as_soon_as_there_is_one() -> None:
    assert wait_for("it", after(3), seconds=5, say=print, every=0.001) == "there"


def test_at_the_deadline_it_tells_what_was_seen_last() -> None:
    with pytest.raises(WaitedInVain, match=r"in vain for the letter; seen last: \d+ to go"):
        wait_for("the letter", after(10**9), seconds=0.01, say=print, every=0.001)


def test_a_process_that_died_ends_the_wait() -> None:
    def alive() -> None:
        raise DevError("worker ended with 1")

    with pytest.raises(DevError, match="worker ended with 1"):
        wait_for("it", after(10**9), seconds=60, say=print, alive=alive, every=0.001)


def test_it_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dev.waiting.TELL_S", 0.0)
    said: list[str] = []
    wait_for("the letter", after(2), seconds=5, say=said.append, every=0.001)
    assert said == [
        "… waiting for the letter (0 s): 2 to go",
        "… waiting for the letter (0 s): 1 to go",
    ]


def test_other_errors_pass() -> None:
    def ask() -> None:
        raise ValueError("not a matter of time")

    with pytest.raises(ValueError, match="not a matter of time"):
        wait_for("it", ask, seconds=5, say=print)
