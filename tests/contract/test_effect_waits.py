"""An effect that another process has begun and not ended is waited for, and not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

import storage.sync
from storage.effects import Effect
from storage.errors import DatabaseAwayError
from storage.settings import StorageSettings
from storage.sync import Database, LoopThread
from tests.support.databases import Database as FreshDatabase


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    made = LoopThread("test")
    yield made
    made.stop()


def begun(database: Database) -> Effect:
    effect = Effect(database, "charge:1", "job", uuid4())
    assert database.run(effect.begin_once()) is None
    return effect


def test_the_wait_for_a_key_ends_as_an_outage_and_the_key_is_free_once_its_holder_has_ended(
    database: FreshDatabase, loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage.sync, "LOCK_TIMEOUT_S", 0.2)
    settings = StorageSettings(_env_file=None, database_url=database.url)  # type: ignore[call-arg, arg-type]
    ours, theirs = Database(settings, loop, "ours"), Database(settings, loop, "theirs")
    stopped = begun(theirs)

    with pytest.raises(DatabaseAwayError):
        begun(ours)
    ours.run(stopped.roll_back())

    ours.run(begun(ours).roll_back())
    for each in (ours, theirs):
        each.run(each.close())
