"""No statement that stores letters reads a whole table or all dead jobs, however many there are."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg
import pytest

from storage import abandoned, copies, intake, letter_jobs
from storage.pool import BY_KEY
from tests.support import background
from tests.support.databases import Database, fresh_database
from tests.support.servers import Servers

BATCH = range(1, 251)
IDS = "{" + ",".join(f"job-{number}" for number in BATCH) + "}"
NUMBERS = "{" + ",".join(map(str, BATCH)) + "}"
ONES = "{" + ",".join("1" for _ in BATCH) + "}"
KEYS = "{" + ",".join(f'"\\\\x{number:02x}"' for number in BATCH) + "}"
STATEMENTS = {
    "facts about jobs": (intake._JOBS, (IDS,)),
    "stored earlier": (intake._STORED_EARLIER, (KEYS, "9")),
    "lock jobs": (letter_jobs._LOCK, (IDS,)),
    "link jobs": (letter_jobs._LINK, (IDS, NUMBERS)),
    "bury jobs": (letter_jobs._BURY, (IDS, NUMBERS, IDS, IDS)),
    "end attempts": (abandoned.END_ATTEMPTS, (IDS,)),
    "originals": (copies._ORIGINALS, (NUMBERS, IDS, ONES)),
}
FILL = (
    "insert into redrive.jobs (id, type, queue, state)"
    " select 'job-' || n, 't', 'q', 'DEAD' from generate_series(1, 20000) as n",
    "insert into redrive.attempts (job_id, generation, attempt, claim, worker, outcome)"
    " select id, 1, 1, gen_random_uuid(), 'w', 'failed' from redrive.jobs",
)


@pytest.fixture(scope="module", params=["of empty tables", "of dead jobs that nobody has counted"])
def database(servers: Servers, template_database: str, request: pytest.FixtureRequest) -> Iterator[Database]:
    with fresh_database(servers.urls.database, template_database) as made:
        if "dead" in request.param:
            for statement in FILL:
                made.execute(statement)
        yield made


async def _plan(url: str, statement: str, arguments: tuple[str, ...]) -> str:
    """On a connection as the consumer's pool has it."""
    connection = await asyncpg.connect(url, server_settings=BY_KEY)
    try:
        await connection.execute(f"prepare p as {statement}")
        literals = ", ".join(f"'{argument}'" for argument in arguments)
        return "\n".join(line[0] for line in await connection.fetch(f"explain execute p({literals})"))
    finally:
        await connection.close()


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_plan_goes_by_key(database: Database, name: str) -> None:
    plan = background.run(_plan(database.url, *STATEMENTS[name]))

    assert "Seq Scan on" not in plan, plan
    assert "jobs_open" not in plan, plan
