"""What groups count: exact whatever happens to the letters, and read by index however many there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import asyncpg
import pytest

from storage.group_counts import CROWDED, fold
from storage.group_list import GroupFilter, details, page
from storage.pool import AnyConnection
from tests.support import background
from tests.support.databases import Database, fresh_database
from tests.support.servers import Servers

T = TypeVar("T")
LETTERS, GROUPS = 100_000, 2_000
GROUP = f"{7:032x}"
COLUMNS = (
    "session_id, dlq, queue, reason, properties, body, exchange, routing_key, body_sha256, body_size,"
    " identity, has_identity, fingerprint"
)
FILL = (
    "insert into redrive.drain_sessions (cluster, vhost, queue, consumer) values ('c', '/', 'q.dlq', 't')",
    "insert into redrive.groups (fingerprint, queue, reason, letters, last_seen)"
    f" select lpad(to_hex(n), 32, '0'), 'q', 'rejected', {LETTERS // GROUPS}, now() - n * interval '1 s'"
    f" from generate_series(0, {GROUPS - 1}) n",
    f"insert into redrive.dead_letters ({COLUMNS})"
    " select 1, 'q.dlq', 'q', 'rejected', '', 'body', '', '', '', 4, int4send(n::int), true,"
    f" lpad(to_hex(n % {GROUPS}), 32, '0') from generate_series(1, {LETTERS}) n",
    "vacuum analyze redrive.dead_letters, redrive.groups, redrive.group_counts, redrive.group_hours",
)


@pytest.fixture(scope="module")
def filled(servers: Servers, template_database: str) -> Iterator[Database]:
    with fresh_database(servers.urls.database, template_database) as made:
        for statement in FILL:
            made.execute(statement)
        yield made


async def _with(url: str, work: Callable[[AnyConnection], Awaitable[T]]) -> T:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return await work(connection)
    finally:
        await connection.close()


class _Spy:
    """A connection that keeps the plan of each statement beside its answer."""

    def __init__(self, connection: AnyConnection) -> None:
        self._connection = connection
        self.plans: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def ask(sql: str, *values: Any) -> Any:
            lines = await self._connection.fetch(f"explain {sql}", *values)
            self.plans.append("\n".join(line[0] for line in lines))
            return await getattr(self._connection, name)(sql, *values)

        return ask


def _plans(database: Database, ask: Callable[[Any], Awaitable[object]]) -> str:
    async def work(connection: AnyConnection) -> str:
        spy = _Spy(connection)
        await ask(spy)
        return "\n".join(spy.plans)

    return background.run(_with(database.url, work))


@pytest.mark.parametrize(
    "ask",
    [
        lambda db: page(db, GroupFilter()),
        lambda db: page(db, GroupFilter(state="open"), sort="letters"),
        lambda db: page(db, GroupFilter(), cursor=f"2026-01-31T00:00:00+00:00~{GROUP}"),
        lambda db: details(db, GROUP),
    ],
    ids=["latest", "largest", "next page", "details"],
)
def test_no_table_is_read_as_a_whole(filled: Database, ask: Callable[[Any], Awaitable[object]]) -> None:
    plan = _plans(filled, ask)
    scans = [line for line in plan.splitlines() if "Seq Scan" in line and "group_states" not in line]
    assert scans == [], plan
    assert "Index" in plan


def _counts(database: Database) -> dict[str, int]:
    found = background.run(_with(database.url, lambda db: details(db, GROUP)))
    (listed,) = [
        group
        for group in background.run(_with(database.url, lambda db: page(db, GroupFilter())))
        if group.fingerprint == GROUP
    ]
    assert listed.counts == found.group.counts
    return {state: number for state, number in found.group.counts.items() if number}


def test_counts_follow_every_change_of_letters_and_leave_copies_out(filled: Database) -> None:
    ids = [
        row["id"]
        for row in filled.fetch(
            "select id from redrive.dead_letters where fingerprint = $1 order by id", GROUP
        )
    ]
    each = LETTERS // GROUPS
    assert _counts(filled) == {"open": each}

    change = "update redrive.dead_letters set state = $2 where id = any($1::bigint[])"
    filled.execute(change, ids[:10], "replaying")
    filled.execute(change, ids[:4], "replayed")
    filled.execute(change, ids[10:13], "discarded")
    assert _counts(filled) == {"open": each - 13, "replaying": 6, "replayed": 4, "discarded": 3}

    copy = (
        f"insert into redrive.dead_letters ({COLUMNS}, duplicate_of) select {COLUMNS}, id"
        " from redrive.dead_letters where id = $1"
    )
    filled.execute(copy, ids[20])
    filled.execute(change, [ids[20]], "discarded")  # the copy follows
    assert _counts(filled) == {"open": each - 14, "replaying": 6, "replayed": 4, "discarded": 4}

    filled.execute("delete from redrive.dead_letters where id = any($1::bigint[])", ids[:2])
    after = {"open": each - 14, "replaying": 6, "replayed": 2, "discarded": 4}
    assert _counts(filled) == after

    for _ in range(CROWDED + 1):
        filled.execute(change, ids[30:31], "discarded")
        filled.execute(change, ids[30:31], "open")
    rows = "select count(*) from redrive.group_counts where fingerprint = $1"
    assert filled.value(rows, GROUP) > CROWDED
    background.run(_with(filled.url, fold))
    assert filled.value(rows, GROUP) == len(after)
    assert _counts(filled) == after


def test_folding_loses_no_count_that_is_written_meanwhile(filled: Database) -> None:
    add = "insert into redrive.group_counts select $1, 'open', 1 from generate_series(1, 60)"
    group = f"{9:032x}"

    async def work() -> int:
        first, second = [await asyncpg.connect(filled.url, timeout=10) for _ in range(2)]
        try:
            await first.execute(add, group)
            late = first.transaction()
            await late.start()
            await first.execute(add, group)
            await fold(second)  # sees the first sixty alone
            await late.commit()
            await fold(second)
            sql = "select sum(letters)::int from redrive.group_counts where fingerprint = $1"
            return int(await first.fetchval(sql, group))
        finally:
            await first.close()
            await second.close()

    assert background.run(work()) == LETTERS // GROUPS + 120
