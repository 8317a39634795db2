"""No statement of the claims reads a whole table, however many rows there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from storage import claims_sql as sql
from storage.claims import connect_for_claims
from storage.settings import StorageSettings
from tests.support import background
from tests.support.databases import Database, fresh_database
from tests.support.servers import Servers

ROWS, BATCH = 20_000, 100


def _all(value: str, kind: str) -> str:
    return f"array_fill({value}, array[{BATCH}])::{kind}[]"


IDS = f"(select array_agg(n::text) from generate_series(1, {BATCH}) as n)"
TASKS = _all("'t'::text", "text")
ONES, TOKENS, TOKEN = _all("1", "int"), _all("gen_random_uuid()", "uuid"), "gen_random_uuid()"
STATEMENTS = {
    "CLAIM": (IDS, ONES, ONES, TOKENS, "'w'", "30", TASKS),
    "ADOPT": (IDS, ONES, ONES, TOKENS, "'w'", "30", TASKS, _all("'q'::text", "text")),
    "ROWS": (IDS,),
    "TAKE_OVER": ("'1'", TOKEN, TOKEN, "'w'", "3", "30"),
    "BELIEVE": ("'1'", "2", "1", TOKEN, "'w'", "30"),
    "COMPLETE": (IDS, TOKENS, _all("'succeeded'::text", "text"), *["null"] * 9, "3"),
    "RECORDED": (IDS, TOKENS),
    "RENEW": (IDS, TOKENS, _all("9", "float8"), "30"),
    "BEGIN": ("'1'", TOKEN, "9"),
    "BURY": (IDS, ONES, ONES, _all("'e'::text", "text")),
    "PROGRESS": ("'1'", TOKEN, "'1'"),
}
FILL = (
    "insert into redrive.jobs (id, type, queue, state)"
    " select n::text, 't', 'q', case when n % 100 = 0 then 'QUEUED' else 'SUCCEEDED' end"
    f" from generate_series(1, {ROWS}) as n",
    "insert into redrive.attempts (job_id, generation, attempt, claim, worker, outcome)"
    " select id, 1, 1, gen_random_uuid(), 'w', 'succeeded' from redrive.jobs",
    "vacuum analyze redrive.jobs, redrive.attempts",
)


@pytest.fixture(scope="module")
def filled(servers: Servers, template_database: str) -> Iterator[Database]:
    with fresh_database(servers.urls.database, template_database) as made:
        for statement in FILL:
            made.execute(statement)
        yield made


@pytest.fixture(scope="module")
def bare(servers: Servers, template_database: str) -> Iterator[Database]:
    with fresh_database(servers.urls.database, template_database) as made:
        yield made


async def _plan(url: str, name: str) -> str:
    """That of the prepared statement, on a connection as the worker has it."""
    connection = await connect_for_claims(StorageSettings(database_url=SecretStr(url)), "test")
    try:
        await connection.execute(f"prepare p as {getattr(sql, name)}")
        arguments = [
            await connection.fetchval(f"select quote_nullable({value})") for value in STATEMENTS[name]
        ]
        lines = await connection.fetch(f"explain execute p({', '.join(arguments)})")
        return "\n".join(line[0] for line in lines)
    finally:
        await connection.close()


def test_each_statement_is_here() -> None:
    assert STATEMENTS.keys() == {name for name in vars(sql) if name.isupper()}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_batch_is_found_by_key(filled: Database, name: str) -> None:
    plan = background.run(_plan(filled.url, name))

    assert "Seq Scan on" not in plan, plan


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_plan_made_on_empty_tables_is_good_for_full_ones(bare: Database, name: str) -> None:
    plan = background.run(_plan(bare.url, name))

    assert "Seq Scan on" not in plan, plan
