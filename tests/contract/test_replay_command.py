"""`dlq replay` against a real database. Its broker does not answer, which is no reason not to plan."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from dlq_consumer.cli import main
from tests.support import letter_rows
from tests.support.databases import Database

NOBODY = "amqp://guest:guest@127.0.0.1:1/"


@pytest.fixture
def letters(database: Database) -> Database:
    letter_rows.prepare(database)
    letter_rows.store(database, 2)
    database.execute("update redrive.dead_letters set target = 'q'")
    return database


def replay(database: Database, *arguments: str) -> Result:
    environment = {"REDRIVE_DATABASE_URL": database.url, "REDRIVE_AMQP_URL": NOBODY}
    return CliRunner(env=environment).invoke(main, ["replay", *arguments])


def test_a_dry_run_of_ids_says_that_one_would_refuse_them_all(letters: Database) -> None:
    letters.execute("update redrive.dead_letters set state = 'discarded' where id = 2")
    for skip, to_send in (((), 0), (("--skip-ineligible",), 1)):
        told = replay(letters, "1", "2", "--dry-run", "--json", *skip)
        answer = json.loads(told.stdout)
        assert (told.exit_code, answer["to_send"], answer["refused"]) == (0, to_send, not skip)
    told = replay(letters, "1", "2", "--dry-run")
    assert (told.exit_code, "letters to send: 0" in told.stdout) == (0, True)
    assert "refused: 1 (2), state is discarded" in told.stdout
    assert "unless --skip-ineligible" in told.stdout


def test_a_breaker_that_is_named_is_not_dropped_on_the_schema_before(letters: Database) -> None:
    letters.execute("drop table redrive.replay_terms")
    refused = replay(letters, "1", "--breaker", "5", "--no-wait")
    assert (refused.exit_code, "a breaker needs" in refused.stderr) == (1, True)
    assert letters.value("select count(*) from redrive.replays") == 0
    assert replay(letters, "1", "--no-wait").exit_code == 0
    assert replay(letters, "2", "--no-wait", "--breaker", "0").exit_code == 0
