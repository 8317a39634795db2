"""A death history that a client made up must not hold up what the broker dead-letters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.ends import Ends
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.wire import RawProperties, properties

FORGED: tuple[object, ...] = ([5], [{"queue": "work", "reason": "rejected", "count": "x"}], 5)


@pytest.fixture
def ends(vhost: Vhost, database: Database, processes: Processes) -> Ends:
    return Ends(vhost, database, processes)


def test_a_forged_death_history_holds_up_no_dead_letter(ends: Ends) -> None:
    """RabbitMQ 3.10.8 holds back all letters of the queue once a message with the first is rejected."""
    ends.start_consumer()
    ends.start(concurrency=1)
    expected = {}
    for number, forged in enumerate(FORGED):
        for task, reason in (("e.raises", "exception"), ("e.unknown", "unknown_task")):
            expected[f"{task}-{number}"] = reason
            headers = {"task": task, "id": f"{task}-{number}", "x-death": forged}
            raw = properties(headers=headers, content_type="application/json")
            ends.publish(b"[[],{},{}]", RawProperties(raw.encode()))

    def letters() -> list[dict[str, Any]]:
        found = ends.database.fetch("select job_id, reason from redrive.dead_letters")
        assert len(found) == len(expected), found
        return found

    stored = eventually(letters, 30, "all letters are stored")
    assert {letter["job_id"]: letter["reason"] for letter in stored} == expected
    assert ends.until_ended(ends.submit("e.raises")).job["reason"] == "exception"
