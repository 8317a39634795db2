"""What only this release's schema has is refused on that of the release before, with what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from api.group_commit import GroupCommit
from storage import (
    alert_list,
    alert_snoozes,
    alerts,
    api_key_changes,
    api_keys,
    batches,
    figures,
    group_list,
    group_states,
    jobs,
    letter_stats,
    regrouping,
)
from storage.api_key_changes import NewSecret, Terms
from storage.audit import Actor, Submitting
from storage.errors import MigrationError
from storage.job_options import JobOptions
from storage.jobs import Accepted, IdempotencyKey, NewJob
from storage.pool import AnyConnection, borrow, open_pool
from storage.schema import WORKS_FROM
from storage.settings import StorageSettings
from tests.support import background
from tests.support.databases import Database, fresh_database, migrate_to
from tests.support.servers import Servers

GROUP = "a" * 32
Ask = Callable[[AnyConnection], Awaitable[Any]]
ASKED: dict[str, Ask] = {
    "alerts": lambda db: alert_list.newest(db, alert_list.AlertFilter(), limit=1),
    "alert": lambda db: alert_list.get(db, uuid4()),
    "test": lambda db: alerts.ask_for_test(db, by="ada"),
    "snooze": lambda db: alert_snoozes.snooze(db, GROUP, datetime.now(UTC), by="ada"),
    "groups": lambda db: group_list.page(db, group_list.GroupFilter()),
    "group": lambda db: group_list.details(db, GROUP),
    "note": lambda db: group_states.note(db, GROUP, by="ada", text="x"),
    "resolve": lambda db: group_states.decide(db, GROUP, "resolve", by="ada", why="x"),
    "stats": letter_stats.stats,
    "regroup": regrouping.old_groups,
    "rotate": lambda db: api_key_changes.rotate(db, "ada", NewSecret("i", b"h"), timedelta(), "ada"),
    "create": lambda db: api_key_changes.create(db, "eve", NewSecret("i", b"e"), Terms((), rate=1.0), "ada"),
    "limit": lambda db: api_key_changes.limit(db, "ada", 1.0, 1),
    "delayed job": lambda db: jobs.submit(db, *new_job("late", JobOptions(delay_s=1.0))),
    "batch of delayed jobs": lambda db: batches.submit(db, "ada", [new_job("late", JobOptions(priority=5))]),
}


def new_job(id_: str, options: JobOptions | None = None) -> tuple[NewJob, IdempotencyKey]:
    new = NewJob(id_, "t", "payments", b"{}", "ada", b"properties", b"body", f"token-{id_}", options)
    return new, IdempotencyKey("ada", id_, b"digest")


@pytest.fixture(scope="module")
def older(servers: Servers) -> Any:
    with fresh_database(servers.urls.database) as made:
        migrate_to(made.url, WORKS_FROM)
        made.execute(
            f"insert into redrive.groups (fingerprint, queue, reason) values ('{GROUP}', 'q', 'foreign')"
        )
        yield made


def test_monitoring_asks_it_what_it_can_tell(older: Database) -> None:
    async def work() -> set[str]:
        connection = await asyncpg.connect(older.url, timeout=10)
        try:
            told = [await ask(connection, ["payments"]) for ask in figures.ASKED.values()]
        finally:
            await connection.close()
        return {figure.name for each in told for figure in each}

    names = background.run(work())
    assert {"redrive_jobs", "redrive_queue_oldest_message_age_seconds", "redrive_outbox_messages"} <= names
    assert not {"redrive_callbacks", "redrive_worker_heartbeat_age_seconds"} & names


def test_jobs_without_options_that_come_together_are_accepted_there_too(older: Database) -> None:
    told = Submitting(Actor("ada", None), "POST /jobs")

    async def work() -> list[Accepted]:
        settings = StorageSettings.model_validate({"database_url": older.url})
        pool = await open_pool(settings, "test", stateless=True)
        try:
            group = GroupCommit(lambda: borrow(pool, 5))
            wanted = [new_job(f"job-{number}") for number in range(5)]
            return await asyncio.gather(*(group.submit(*each, told) for each in wanted))
        finally:
            await pool.close()

    assert [each.job.id for each in background.run(work())] == [f"job-{number}" for number in range(5)]
    # What was refused left nothing.
    assert older.value("select count(*) from redrive.jobs") == 5


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_it_says_that_the_schema_is_to_be_migrated(older: Database, ask: Ask) -> None:
    async def work() -> None:
        connection = await asyncpg.connect(older.url, timeout=10)
        try:
            with pytest.raises(MigrationError, match="Run: storage migrate"):
                await ask(connection)
        finally:
            await connection.close()

    background.run(work())


def test_keys_of_the_older_schema_are_known_listed_and_revoked(older: Database) -> None:

    async def work() -> None:
        connection = await asyncpg.connect(older.url, timeout=10)
        try:
            made = await api_key_changes.create(
                connection, "bob", NewSecret("id", b"hash"), Terms(("read",)), "ada"
            )
            assert (made.name, made.state) == ("bob", "active")
            found = await api_keys.find(connection, "id", b"hash")
            assert found is not None
            assert (found.name, set(found.scopes)) == ("bob", {"read"})
            assert await api_keys.find(connection, "id", b"other") is None
            assert (await api_key_changes.revoke(connection, "bob", "ada")).state == "revoked"
            assert await api_keys.find(connection, "id", b"hash") is None
        finally:
            await connection.close()

    background.run(work())
