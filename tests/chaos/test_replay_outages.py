"""Broker and database are killed under a replay: nothing is lost, nothing sent twice, a doubt is told."""

from __future__ import annotations

import json
from collections import Counter

import asyncpg
import pytest

from dev.servers import NotControllable, Servers
from tests.support.databases import Database
from tests.support.graveyard import Graveyard, order, plain
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually

JOBS = STRANGERS = 40
DATABASE_AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
LEFT = "select count(*) from redrive.replay_items where state in ('staged', 'publishing')"
SENT = "select count(*) from redrive.replay_items where state = 'published'"


def test_a_replay_outlives_a_killed_broker_and_a_killed_database(
    servers: Servers, vhost: Vhost, database: Database, processes: Processes
) -> None:
    graveyard = Graveyard(vhost, database, processes)
    process = graveyard.start()
    for number in range(JOBS):
        graveyard.failed_job(f"job-{number}", "Traceback: no")
    graveyard.publish("orders", *(order(f"job-{number}") for number in range(JOBS)))
    graveyard.publish("mails", *(plain(b"x", message_id=f"m{number}") for number in range(STRANGERS)))
    graveyard.reject("orders", JOBS)
    graveyard.reject("mails", STRANGERS)
    letters = [str(row["id"]) for row in graveyard.until_stored(JOBS + STRANGERS, 60)]
    # Jobs and strangers by turns.
    mixed = [letter for pair in zip(letters[:JOBS], letters[JOBS:], strict=True) for letter in pair]
    done = graveyard.dlq("replay", *mixed, "--rate", "16", "--yes", "--no-wait", "--json")
    assert done.returncode == 0, done.stderr
    replay = json.loads(done.stdout)["id"]

    eventually(lambda: database.value(SENT) >= 8, 30, "it has begun")
    try:
        servers.kill_broker()
    except NotControllable as error:
        pytest.skip(f"not run: {error}")
    servers.start_broker()
    left = database.value(LEFT)
    eventually(lambda: database.value(LEFT) <= max(left - 8, 0), 60, "it goes on after the broker")
    servers.kill_database()
    servers.start_database()
    eventually(lambda: database.value(LEFT) == 0, 90, "all is sent", ignoring=DATABASE_AWAY)
    assert process.exit_code is None

    items = database.fetch("select * from redrive.replay_items where replay_id = $1::uuid", replay)
    arrived: Counter[str] = Counter()
    for queue in ("orders", "mails"):
        for _ in range(graveyard.depth(queue)):
            arrived[str(graveyard.take(queue)[0].get_header("redrive-replay"))] += 1
    assert set(arrived) <= {item["token"] for item in items}
    for item in items:
        times = arrived[item["token"]]
        if item["generation"] is not None:  # its claim tells a second arrival
            assert (item["state"], times >= 1) == ("published", True), item
        else:
            assert (item["state"], times) in (("published", 1), ("unknown", 0), ("unknown", 1)), item
    doubts = sum(item["state"] == "unknown" for item in items)
    assert doubts <= 2 * 4, "of two batches at most"
    assert {row["state"] for row in graveyard.letters()} == {"replayed"}
    generations = database.fetch("select distinct state, generation from redrive.jobs")
    assert [(row["state"], row["generation"]) for row in generations] == [("QUEUED", 2)]
