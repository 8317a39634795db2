"""One bad record of a batch is dealt with alone; an outage is nobody's fault."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest

from storage.claims import StatementError
from storage.errors import DatabaseAwayError
from workers.parts import in_parts

REFUSALS = [StatementError("refused"), ValueError("not finite"), TypeError("no JSON"), OverflowError("large")]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
def test_one_bad_record_is_dealt_with_alone(refusal: Exception) -> None:
    async def call(part: Sequence[int]) -> list[str]:
        if 5 in part:
            raise refusal
        return [f"done {number}" for number in part]

    async def alone(number: int, error: Exception) -> list[str]:
        assert error is refusal
        return [f"alone {number}"]

    async def run() -> list[str]:
        return await in_parts(call, list(range(8)), alone)

    assert anyio.run(run) == [f"{'alone' if number == 5 else 'done'} {number}" for number in range(8)]


def test_an_outage_decides_about_no_record() -> None:
    async def call(part: Sequence[int]) -> list[str]:
        raise DatabaseAwayError("gone")

    async def alone(number: int, error: Exception) -> list[str]:
        raise AssertionError("no record is at fault")

    async def run() -> list[str]:
        return await in_parts(call, [1], alone)

    with pytest.raises(DatabaseAwayError):
        anyio.run(run)
