"""Migrations on a real Postgres: once, in order, by one process at a time, and checked before a start."""

import subprocess
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from storage.migrate import migrations
from tests.support import background
from tests.support.databases import Database
from tests.support.processes import clean_environment, console_script
from tests.support.releases import NEXT, next_release
from tests.support.waiting import eventually

LEVEL = len(migrations())


def storage(database: Database, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment({"REDRIVE_DATABASE_URL": database.url} | settings)
    command = console_script("storage.cli:main", *arguments)
    return subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def test_migrate_applies_each_migration_once(empty_database: Database) -> None:
    before = storage(empty_database, "check")
    first, second = storage(empty_database, "migrate"), storage(empty_database, "migrate")
    after = storage(empty_database, "check")

    assert (before.returncode, first.returncode, second.returncode, after.returncode) == (1, 0, 0, 0)
    assert "Run: storage migrate" in before.stderr
    assert first.stdout.count("applied ") == LEVEL
    assert second.stdout.count("applied ") == 0
    assert f"schema: OK (level {LEVEL})" in after.stdout


def test_processes_that_migrate_at_once_wait_for_each_other(empty_database: Database) -> None:
    environment = clean_environment({"REDRIVE_DATABASE_URL": empty_database.url})
    command = console_script("storage.cli:main", "migrate")
    running = [
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for _ in range(4)
    ]
    output = [process.communicate(timeout=60)[0] for process in running]

    assert [process.returncode for process in running] == [0] * 4, output
    assert sum(text.count("applied ") for text in output) == LEVEL


def test_an_applied_migration_that_was_edited_is_refused(database: Database) -> None:
    database.execute("UPDATE redrive.schema_migrations SET digest = 'other' WHERE level = 1")

    refused = storage(database, "migrate")

    assert refused.returncode == 1
    assert "0001_jobs.sql was changed after it was applied" in refused.stderr


EXPANDS = "-- expand: hats\nALTER TABLE redrive.jobs ADD COLUMN hat text;"
CONTRACTS = f"-- contract: level {NEXT}\nALTER TABLE redrive.jobs DROP COLUMN principal;"


def test_what_takes_something_away_waits_until_it_is_told_to(database: Database, tmp_path: Path) -> None:
    newer = next_release(tmp_path, EXPANDS, CONTRACTS)

    before = storage(database, "check", **newer)
    expanded = storage(database, "migrate", **newer)
    between, beside = storage(database, "check", **newer), storage(database, "check")
    contracted = storage(database, "migrate", "--contract", **newer)
    after, left = storage(database, "check", **newer), storage(database, "check")
    older = storage(database, "migrate")

    waits = "; once nothing of the previous release runs: storage migrate --contract"
    assert f"schema: OK (at level {LEVEL} of {NEXT + 1}; off until `storage migrate`: hats)" in before.stdout
    assert expanded.stdout.splitlines()[0] == f"applied {NEXT:04}_added.sql"
    assert expanded.stdout.splitlines()[1].startswith(f"schema: level {NEXT} at ")
    assert expanded.stdout.endswith(waits + "\n")
    assert f"schema: OK (level {NEXT}){waits}" in between.stdout
    assert f"schema: OK (level {NEXT})\n" in beside.stdout, "this release works on it"
    assert f"applied {NEXT + 1:04}_added.sql" in contracted.stdout
    assert f"schema: OK (level {NEXT + 1})\n" in after.stdout
    assert (left.returncode, older.returncode) == (1, 1)
    for refused in (left, older):
        assert f"needs a release of level {NEXT} or newer, this one is of level {LEVEL}" in refused.stderr


def test_a_new_database_gets_everything_at_once(empty_database: Database, tmp_path: Path) -> None:
    done = storage(empty_database, "migrate", **next_release(tmp_path, EXPANDS, CONTRACTS))

    assert done.stdout.count("applied ") == NEXT + 1, done.stderr


def test_a_migration_does_not_hold_up_the_others_while_it_waits_for_a_table(
    database: Database, tmp_path: Path
) -> None:
    environment = clean_environment({"REDRIVE_DATABASE_URL": database.url} | next_release(tmp_path, EXPANDS))
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%hat%'"
    holder = background.run(asyncpg.connect(database.url))
    with closing(_Closing(holder)):
        background.run(holder.execute("BEGIN; SELECT count(*) FROM redrive.jobs"))
        migrating = subprocess.Popen(
            console_script("storage.cli:main", "migrate"),
            env=environment, cwd="/", stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        eventually(lambda: database.value(waiting) == 1, 20, "the migration waits for the table")
        eventually(lambda: database.value(waiting) == 0, 20, "it lets the others through")
        database.execute("INSERT INTO redrive.jobs (id, type, queue) VALUES ('j', 't', 'q')")
        background.run(holder.execute("COMMIT"))
        output, _ = migrating.communicate(timeout=60)

    assert migrating.returncode == 0
    assert f"applied {NEXT:04}_added.sql" in output


class _Closing:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    def close(self) -> None:
        background.run(self._connection.close())


def test_a_schema_of_the_next_release_is_no_obstacle(database: Database) -> None:
    database.execute("INSERT INTO redrive.schema_migrations (level, name, digest) VALUES (9999, 'next', 'x')")

    assert storage(database, "check").returncode == 0


@pytest.mark.parametrize("url", ["", "mysql://h/x", "postgresql://h", "postgresql+psycopg2://h/x"])
def test_a_wrong_url_is_named(empty_database: Database, url: str) -> None:
    refused = storage(empty_database, "migrate", REDRIVE_DATABASE_URL=url)

    assert refused.returncode == 2
    assert refused.stderr.startswith("REDRIVE_DATABASE_URL: ")
    assert empty_database.fetch("SELECT 1 FROM pg_namespace WHERE nspname = 'redrive'") == []
