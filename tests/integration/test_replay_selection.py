"""Letters chosen for a replay by a filter."""

from __future__ import annotations

import json

from tests.support.databases import Database
from tests.support.graveyard import Graveyard, order, plain
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually


def test_a_filter_is_told_then_frozen_and_leaves_out_what_cannot_be_replayed(
    vhost: Vhost, database: Database, processes: Processes
) -> None:
    graveyard = Graveyard(vhost, database, processes)
    graveyard.start()
    for job_id in ("a", "b", "c"):
        graveyard.failed_job(job_id, "Traceback: no")
        graveyard.bury("orders", order(job_id))
    graveyard.bury("orders", plain(b"of another kind", message_id="m"))
    first = graveyard.until_stored(4)[0]["id"]
    database.execute("update redrive.jobs set state = 'SUCCEEDED' where id = 'b'")

    told = graveyard.dlq("replay", "--task", "orders.place", "--dry-run", "--json")
    assert told.returncode == 0, told.stderr
    shown = json.loads(told.stdout)
    assert (shown["letters"], shown["left_out"]) == (2, {"its job is SUCCEEDED": 1})
    assert [(of["target"], of["task"], of["letters"]) for of in shown["of"]] == [
        ("orders", "orders.place", 2)
    ]
    limited = graveyard.dlq("replay", "--task", "orders.place", "--dry-run", "--limit", "1", "--json")
    assert json.loads(limited.stdout)["to_send"] == 1
    unasked = graveyard.dlq("replay", "--task", "orders.place", "--no-wait")
    assert unasked.returncode == 1
    assert database.value("select count(*) from redrive.replays") == 0

    one = graveyard.dlq("replay", "--task", "orders.place", "--limit", "1", "--yes", "--no-wait", "--json")
    rest = graveyard.dlq("replay", "--task", "orders.place", "--yes", "--no-wait", "--json")
    none = graveyard.dlq("replay", "--task", "orders.place", "--yes", "--no-wait")
    both = graveyard.dlq("replay", "1", "--task", "orders.place")
    assert [item["letter_id"] for item in json.loads(one.stdout)["items"]] == [first]
    assert [item["job_id"] for item in json.loads(rest.stdout)["items"]] == ["c"]
    assert (none.returncode, both.returncode) == (1, 2)
    assert "no letter that can be replayed" in none.stderr
    eventually(lambda: graveyard.depth("orders") == 2, 30, "both are sent")
