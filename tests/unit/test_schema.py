"""Which schemas a release works on, and what a migration says of itself."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from storage.errors import MigrationError
from storage.migrate import Migration, migrations
from storage.schema import WORKS_FROM, Schema, check_schema

# A CHECK is dropped to put a wider one in its place; without a NOT NULL or a foreign key more fits (what its
# CASCADE did is a trigger's to do); an index is no more than speed, as long as no statement's ON CONFLICT
# goes by it.
TAKES_AWAY = re.compile(
    r"\bDROP\s+(?!TRIGGER|FUNCTION|INDEX|NOT\s+NULL|CONSTRAINT\s+\w+_fkey\b|CONSTRAINT\s+(\w+_check),\s+ADD\s+CONSTRAINT\s+\1\b)|\bRENAME\b|\bSET\s+NOT\s+NULL\b|\bTYPE\s+\w+\s+USING\b"
    r"|(?<!AFTER )\bTRUNCATE\b"
    r"|\bADD\s+COLUMN\s+(?![^,;]*\bDEFAULT\b)[^,;]*\bNOT\s+NULL\b",
    re.IGNORECASE,
)


def test_this_release_works_on_the_schema_of_the_previous_one() -> None:
    assert 0 < WORKS_FROM <= len(migrations())


@pytest.mark.parametrize("migration", migrations()[WORKS_FROM:], ids=lambda m: m.name)
def test_a_migration_since_the_previous_release_says_what_it_is(migration: Migration) -> None:
    assert migration.off_without or migration.oldest


@pytest.mark.parametrize("migration", [m for m in migrations() if not m.oldest], ids=lambda m: m.name)
def test_what_expands_takes_nothing_away(migration: Migration) -> None:
    assert TAKES_AWAY.findall(migration.sql) == []


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE redrive.jobs",
        "ALTER TABLE redrive.jobs DROP COLUMN worker",
        "ALTER TABLE redrive.jobs RENAME TO j",
        "ALTER TABLE redrive.jobs ALTER COLUMN worker SET NOT NULL",
        "ALTER TABLE redrive.jobs ADD COLUMN more text NOT NULL",
    ],
)
def test_what_takes_away_is_seen(statement: str) -> None:
    assert TAKES_AWAY.search(statement)
    assert not TAKES_AWAY.search("ALTER TABLE redrive.jobs ADD COLUMN more text NOT NULL DEFAULT ''")


def test_no_migration_shuts_out_the_release_before_its_own() -> None:
    contracts = [migration for migration in migrations() if migration.oldest]
    assert all(migration.oldest <= migration.level for migration in contracts if migration.oldest)
    assert all((a.oldest or 0) <= (b.oldest or 0) for a, b in pairwise(contracts))


def test_the_first_line_of_a_migration_is_read() -> None:
    assert Migration(6, "", "-- expand: chords\nCREATE …").off_without == "chords"
    assert Migration(7, "", "-- contract: level 6, which reads no more of it\nDROP …").oldest == 6
    assert (Migration(1, "", "-- Jobs.").off_without, Migration(1, "", "-- Jobs.").oldest) == (None, None)


@pytest.mark.parametrize(
    ("schema", "refusal"),
    [
        (Schema(7), None),
        (Schema(6), None),
        (Schema(9), None),
        (Schema(9, oldest=7), None),
        (Schema(5), "level 5, this release needs 7, and 6 at least. Run: storage migrate"),
        (Schema(0), "level 0, this release needs 7, and 6 at least. Run: storage migrate"),
        (Schema(9, oldest=8), "needs a release of level 8 or newer, this one is of level 7"),
    ],
)
def test_a_release_of_level_7_after_one_of_level_6(schema: Schema, refusal: str | None) -> None:
    if refusal is None:
        check_schema(schema, release=7, works_from=6)
        return
    with pytest.raises(MigrationError) as raised:
        check_schema(schema, release=7, works_from=6)
    assert refusal in str(raised.value)
