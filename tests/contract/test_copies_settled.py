"""Copies follow the first letter of their death, however many letters one statement changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import letter_rows
from tests.support.databases import Database, fresh_database
from tests.support.servers import Servers


@pytest.fixture
def database(servers: Servers, template_database: str) -> Iterator[Database]:
    with fresh_database(servers.urls.database, template_database) as made:
        letter_rows.prepare(made)
        yield made


def test_one_statement_settles_the_copies_of_all_its_letters(database: Database) -> None:
    letter_rows.store(database, 9)
    # 1 to 3 are the first, 4 to 6 and 7 to 9 their copies; 10 has none.
    letter_rows.store_as(database, b"\x00\x00", b"alone")
    database.execute(
        "update redrive.dead_letters set duplicate_of = 1 + (id - 1) % 3 where id between 4 and 9"
    )
    counts = (
        "select state, sum(letters)::int as n from redrive.group_counts group by 1 having sum(letters) <> 0"
    )

    database.execute(
        "update redrive.dead_letters set state = case id when 1 then 'discarded' else 'replayed' end"
        " where id in (1, 2, 10)"
    )

    states = database.fetch("select id, state from redrive.dead_letters order by id")
    assert {row["id"]: row["state"] for row in states} == {
        1: "discarded", 4: "discarded", 7: "discarded",
        2: "replayed", 5: "replayed", 8: "replayed",
        3: "open", 6: "open", 9: "open",
        10: "replayed",
    }  # fmt: skip
    assert {row["state"]: row["n"] for row in database.fetch(counts)} == {
        "discarded": 1,
        "replayed": 2,
        "open": 1,
    }, "copies are not counted"


def test_what_happens_to_a_copy_alone_changes_no_other(database: Database) -> None:
    letter_rows.store(database, 3)
    database.execute("update redrive.dead_letters set duplicate_of = 1 where id > 1")

    database.execute("update redrive.dead_letters set detail = 'd' where id = 1")
    database.execute("update redrive.dead_letters set state = 'discarded' where id = 2")

    states = database.fetch("select state from redrive.dead_letters order by id")
    assert [row["state"] for row in states] == ["open", "discarded", "open"]


def test_no_copy_calls_nothing_for_each_letter(database: Database) -> None:
    letter_rows.store(database, 500)
    rows = "select count(*) from redrive.group_counts"
    before = database.value(rows)

    database.execute("update redrive.dead_letters set state = 'discarded'")

    assert database.value(rows) == before + 2, "counted once for the statement"
