"""Whoever deletes jobs deletes their messages and keys, without a foreign key."""

from __future__ import annotations

import pytest

from tests.support.databases import Database

JOBS = """
with job as (insert into redrive.jobs (id, type, queue) select n::text, 't', 'q' from generate_series(1, 9) n
             returning id),
key as (insert into redrive.idempotency_keys (scope, key, request, job_id) select 's', id, '', id from job)
insert into redrive.outbox (job_id, queue, properties, body, token) select id, 'q', '', '', id from job
"""


@pytest.fixture(autouse=True)
def jobs(database: Database) -> None:
    database.execute(JOBS)


def left(database: Database, table: str) -> list[str]:
    return [row["job_id"] for row in database.fetch(f"select job_id from redrive.{table} order by job_id")]


@pytest.mark.parametrize("table", ["outbox", "idempotency_keys"])
def test_what_deleted_jobs_had_is_gone_and_what_others_have_stays(database: Database, table: str) -> None:
    database.execute("delete from redrive.jobs where id between '3' and '7'")
    assert left(database, table) == ["1", "2", "8", "9"]
    database.execute("delete from redrive.jobs where id = 'none'")
    assert left(database, table) == ["1", "2", "8", "9"]


@pytest.mark.parametrize("table", ["outbox", "idempotency_keys"])
def test_with_all_jobs_all_of_it_goes(database: Database, table: str) -> None:
    database.execute("truncate redrive.jobs cascade")
    assert left(database, table) == []


def test_no_submission_asks_for_its_job_once_more(database: Database) -> None:
    """Each foreign key to `jobs` costs a look-up and a lock for each row that is inserted."""
    asking = """select conrelid::regclass::text as name from pg_constraint
        where contype = 'f' and confrelid = 'redrive.jobs'::regclass"""
    names = {row["name"] for row in database.fetch(asking)}
    assert names.isdisjoint({"redrive.outbox", "redrive.idempotency_keys", "redrive.audit"})
