"""The one waiting helper: returns the true value, ends at its deadline, tells what was missing."""

from __future__ import annotations

import asyncio

import pytest

from tests.support import waiting
from tests.support.waiting import eventually, eventually_async


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LEAST_S", 0.0)


def test_returns_the_first_true_value() -> None:
    answers = iter([None, [], [7]])
    assert eventually(lambda: next(answers), 5, "a list", every_s=0.001) == [7]


@pytest.mark.usefixtures("impatient")
def test_a_failed_assertion_means_not_yet_and_is_told_at_the_deadline() -> None:
    def counted() -> bool:
        raise AssertionError("2 letters, not 3")

    with pytest.raises(AssertionError, match=r"not within 0.02 s: three letters; last: .*2 letters, not 3"):
        eventually(counted, 0.02, "three letters", every_s=0.001)


def test_other_exceptions_pass_through_at_once() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 // 0, 30)


@pytest.mark.anyio
@pytest.mark.usefixtures("impatient")
async def test_the_async_form_cuts_off_a_call_that_hangs() -> None:
    with pytest.raises(AssertionError, match="an answer"):
        await eventually_async(asyncio.Event().wait, 0.05, "an answer")
