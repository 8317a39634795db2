"""Migrations on a real Postgres: once, in order, by one process at a time, and checked before a start."""

import subprocess

import pytest

from storage.migrate import migrations
from tests.support.databases import Database
from tests.support.processes import clean_environment, console_script

LEVEL = len(migrations())


def storage(database: Database, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = clean_environment({"REDRIVE_DATABASE_URL": database.url} | settings)
    command = console_script("storage.cli:main", *arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


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


def test_a_schema_of_the_next_release_is_no_obstacle(database: Database) -> None:
    database.execute("INSERT INTO redrive.schema_migrations (level, name, digest) VALUES (9999, 'next', 'x')")

    assert storage(database, "check").returncode == 0


@pytest.mark.parametrize("url", ["", "mysql://h/x", "postgresql://h", "postgresql+psycopg2://h/x"])
def test_a_wrong_url_is_named(empty_database: Database, url: str) -> None:
    refused = storage(empty_database, "migrate", REDRIVE_DATABASE_URL=url)

    assert refused.returncode == 2
    assert refused.stderr.startswith("REDRIVE_DATABASE_URL: ")
    assert empty_database.fetch("SELECT 1 FROM pg_namespace WHERE nspname = 'redrive'") == []
