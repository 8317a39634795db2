"""Many who ask at once whether it is ready cost the database one look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from api import readiness
from api.readiness import DatabaseLook
from storage.errors import DatabaseAwayError
from storage.pool import AnyConnection

pytestmark = pytest.mark.anyio


class Counted:
    """A database whose schema is right, or which is away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks = 0
        self.away = False
        self.answers = asyncio.Event()
        monkeypatch.setattr(readiness, "require_schema", self._right)

    async def _right(self, _: object) -> None:
        await self.answers.wait()

    @asynccontextmanager
    async def database(self) -> AsyncIterator[AnyConnection]:
        self.looks += 1
        if self.away:
            raise DatabaseAwayError("away")
        yield cast(AnyConnection, None)


async def test_those_who_ask_together_share_a_look_and_who_goes_away_ends_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(monkeypatch)
    look = DatabaseLook(counted.database)
    first, *others = [asyncio.create_task(look.state()) for _ in range(50)]
    await asyncio.wait([first], timeout=0)
    first.cancel()
    counted.answers.set()
    assert await asyncio.gather(*others) == ["ok"] * 49
    assert first.cancelled()
    assert (await look.state(), counted.looks) == ("ok", 1)


async def test_what_is_old_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    counted.answers.set()
    monkeypatch.setattr(readiness, "FRESH_S", -1.0)
    look = DatabaseLook(counted.database)
    assert await look.state() == "ok"
    counted.away = True
    assert await look.state() == "away"
