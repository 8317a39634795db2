"""Pages of letters, by every filter: together they are what the one condition chooses, in one order."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from storage import letter_pages
from storage.letter_filter import LetterFilter, Parameters, where
from storage.letter_pages import Cursor, Page
from tests.support import background
from tests.support.databases import Database, fresh_database
from tests.support.servers import Servers

START = datetime(2026, 1, 1, tzinfo=UTC)
LETTERS = 400
FILL = (
    "insert into redrive.drain_sessions (cluster, vhost, queue, consumer) values ('c', '/', 'q', 'test')",
    "insert into redrive.groups (fingerprint, queue, reason) values ('g0', 'q', 'r'), ('g1', 'q', 'r')",
    # Times of death go back and forth, and repeat.
    "insert into redrive.dead_letters (session_id, dlq, queue, reason, state, properties, body, exchange,"
    " routing_key, body_sha256, body_size, identity, has_identity, job_id, task, exception_type, fingerprint,"
    " dead_at) select 1, case n % 5 when 0 then 'unusual' when 1 then 'q0' else 'q' || n % 3 || '.dlq' end,"
    " 'q' || n % 3, case n % 4 when 0 then 'expired' else 'exception' end,"
    " (array['open', 'replayed', 'replayed', 'discarded', 'quarantined', 'replaying'])[1 + n % 6], '',"
    " convert_to('body ' || n % 7, 'UTF8') || '\\xff', '', '', '', 1, int4send(n), true, 'job-' || n % 50,"
    " 'task-' || n % 2, 'Error' || n % 3, 'g' || n % 2,"
    f" $1::timestamptz + (n * 37 % 100) * interval '1 minute' from generate_series(1, {LETTERS}) as n",
    "insert into redrive.replays (id, requested_by) values ('00000000-0000-0000-0000-000000000001', 'test')",
    "insert into redrive.replay_items (token, replay_id, position, letter_id, target, state, outcome,"
    " decided_at) select id::text, '00000000-0000-0000-0000-000000000001', id, id, 'q', 'published',"
    " (array['succeeded', 'unknown', null])[1 + id % 3], case when id % 3 < 2 then now() end"
    " from redrive.dead_letters where state = 'replayed'",
)


@pytest.fixture(scope="module")
def letters(servers: Servers, template_database: str) -> Iterator[Database]:
    with fresh_database(servers.urls.database, template_database) as database:
        for statement in FILL:
            database.execute(statement, *([START] if "$1" in statement else []))
        yield database


def minutes(number: int) -> datetime:
    return START + timedelta(minutes=number)


WANTED = [
    LetterFilter(),
    LetterFilter(queue="q0"),  # a work queue, and the name of another one's dead-letter queue
    LetterFilter(queue="q1.dlq"),
    LetterFilter(queue="unusual"),
    LetterFilter(queue="unusual", undecided=True, since=minutes(10)),
    LetterFilter(reason="expired"),
    LetterFilter(task="task-1", exception="Error2"),
    LetterFilter(group="g1", state="discarded"),
    LetterFilter(state="replayed"),
    LetterFilter(state="quarantined"),
    LetterFilter(undecided=True),
    LetterFilter(undecided=True, queue="q0", state="replayed"),
    LetterFilter(job_id="job-7"),
    LetterFilter(since=minutes(50)),
    LetterFilter(until=minutes(50)),
    LetterFilter(since=minutes(20), until=minutes(21)),
    LetterFilter(text="body 3"),
    LetterFilter(text="body 3", queue="q0"),
    LetterFilter(text="body 3", since=minutes(20), undecided=True),
    LetterFilter(text="body 9"),
    LetterFilter(task="none"),
]


async def pages(url: str, wanted: LetterFilter, limit: int) -> list[int]:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        found: list[int] = []
        after: Cursor | None = None
        while True:
            one: Page = await letter_pages.page(connection, wanted, limit=limit, after=after)
            assert len(one.letters) <= limit
            found += [letter.id for letter in one.letters]
            if one.next is None:
                return found
            after = Cursor.parse(str(one.next))
    finally:
        await connection.close()


def chosen(database: Database, wanted: LetterFilter) -> list[int]:
    values = Parameters()
    order = "dead_at desc, id desc" if wanted.since or wanted.until else "id desc"
    condition = where(wanted, values)
    rows = database.fetch(
        f"select l.id from redrive.dead_letters l where {condition} order by {order}", *values.values
    )
    return [row["id"] for row in rows]


@pytest.mark.parametrize("wanted", WANTED, ids=lambda wanted: wanted.words)
def test_the_pages_together_are_what_the_condition_chooses(letters: Database, wanted: LetterFilter) -> None:
    expected = chosen(letters, wanted)
    assert (len(expected) > 0) is (wanted.task != "none" and wanted.text != "body 9")
    for limit in (7, 1_000):
        assert background.run(pages(letters.url, wanted, limit)) == expected


def test_a_search_for_text_goes_on_where_its_time_was_over(
    letters: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_pages, "SEARCH_S", 0.0)
    monkeypatch.setattr(letter_pages, "FIRST_SEARCHED", 30)

    async def first() -> Page:
        connection = await asyncpg.connect(letters.url, timeout=10)
        try:
            return await letter_pages.page(connection, LetterFilter(text="body 9"), limit=5)
        finally:
            await connection.close()

    found = background.run(first())
    assert (found.letters, found.next) == ((), Cursor(LETTERS - 29))
    wanted = LetterFilter(text="body 3", since=minutes(20))
    assert background.run(pages(letters.url, wanted, 5)) == chosen(letters, wanted)


def test_undecided_is_what_nobody_decided_on_or_knows_the_outcome_of(letters: Database) -> None:
    rows = letters.fetch(
        "select l.id, l.state, i.outcome from redrive.dead_letters l"
        " left join redrive.replay_items i on i.letter_id = l.id order by l.id desc"
    )
    expected = [
        row["id"]
        for row in rows
        if row["state"] in ("open", "replaying", "quarantined")
        or (row["state"] == "replayed" and row["outcome"] != "succeeded")
    ]
    assert chosen(letters, LetterFilter(undecided=True)) == expected


@pytest.mark.parametrize("text", ["", "x", "1@", "@5", "-1", str(2**63), "1@" + "9" * 18, "٣"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no cursor"):
        Cursor.parse(text)


async def _page(url: str, wanted: LetterFilter, after: Cursor) -> Any:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return await letter_pages.page(connection, wanted, after=after)
    finally:
        await connection.close()


def test_a_cursor_of_a_list_in_another_order_is_refused(letters: Database) -> None:
    for wanted, after in ((LetterFilter(), Cursor(1, START)), (LetterFilter(since=START), Cursor(1))):
        with pytest.raises(ValueError, match="of a list with another filter"):
            background.run(_page(letters.url, wanted, after))
