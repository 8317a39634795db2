"""Which of the driver's errors say that Postgres is away."""

from __future__ import annotations

import asyncpg
import pytest

from storage.errors import DatabaseAwayError, DatabaseRefusedError, translate, translate_all


@pytest.mark.parametrize(
    "text", ["pool is closing", "pool is closed", "connection is closed", "cannot use a lost connection"]
)
def test_a_pool_or_connection_that_is_given_up_is_an_outage(text: str) -> None:
    with pytest.raises(DatabaseAwayError), translate("ask"):
        raise asyncpg.InterfaceError(text)


def test_a_wrong_call_is_none() -> None:
    with pytest.raises(asyncpg.InterfaceError), translate("ask"):
        raise asyncpg.InterfaceError("the server expects 2 arguments")


def test_the_row_that_breaks_a_constraint_is_told_to_nobody() -> None:
    broken = asyncpg.CheckViolationError("violates check constraint")
    broken.detail = "Failing row contains (rdk_secret)."
    with pytest.raises(DatabaseRefusedError) as raised, translate_all("write"):
        raise broken
    assert str(raised.value) == "Postgres refuses (write): violates check constraint (CheckViolationError)"
