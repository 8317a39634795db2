"""Letters that the broker cannot hand on, or that it loses, are in no queue that is drained: it is told."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from api.broker_view import BrokerView
from api.broker_watch import BrokerWatch
from dlq_consumer.harmed import HarmWatch
from tests.support import background
from tests.support.databases import Database
from tests.support.graveyard import Graveyard, order
from tests.support.policies import put_policy, somebodys
from tests.support.processes import Processes
from tests.support.small_topology import TOPOLOGY
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually, eventually_async
from topology.entities import Policy
from topology.management import Management


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


def delete(graveyard: Graveyard, kind: str, name: str) -> None:
    graveyard.vhost.management.delete(f"/api/{kind}/{graveyard.vhost.vhost}/{name}").raise_for_status()


async def troubles_once_stuck(graveyard: Graveyard) -> list[str]:
    """What the API's watch says of the queue `orders` once it counts stuck letters."""
    view = BrokerView(graveyard.vhost.management_url, graveyard.vhost.vhost)
    watch = BrokerWatch(view, TOPOLOGY, 0.1)
    running = asyncio.create_task(watch.run())

    async def counted() -> bool:
        return watch.stuck == 2

    try:
        await eventually_async(counted, 60, "the API's watch counts them")
        return [each.trouble for each in watch.troubles if each.name == "orders"]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await view.close()


def test_stuck_letters_are_told_of_by_the_consumer_and_by_check_until_they_move(graveyard: Graveyard) -> None:
    well = graveyard.dlq("check").stdout
    assert ("stuck letters: OK (none)" in well, "exchanges and bindings: OK" in well) == (True, True)
    consumer = graveyard.start()
    delete(graveyard, "exchanges", "orders.dlx")
    cap = Policy("caps", "^mails.dlq$", {"max-length": 9})
    put_policy(graveyard.vhost, cap).raise_for_status()
    foreseen = graveyard.dlq("check")
    assert (foreseen.returncode, "stuck letters: OK" in foreseen.stdout) == (1, True), "none has died yet"
    assert "exchange orders.dlx: it is missing. Run: topology apply" in foreseen.stdout
    for number in range(2):
        graveyard.bury("orders", order(f"job-{number}"))

    told = "dead letters cannot reach the dead-letter exchange. Run: topology verify"
    consumer.wait_for_log(told, 60)
    check = graveyard.dlq("check")
    seen_by_the_api = asyncio.run(troubles_once_stuck(graveyard))

    assert "action=letters_stuck queue=orders letters=2" in consumer.log
    assert check.returncode == 1
    assert f"queue orders: 2 {told}" in check.stdout
    assert "2 dead letters or retries cannot leave the queue" in seen_by_the_api
    delete(graveyard, "queues", "orders")
    consumer.wait_for_log("action=letters_moved queue=orders", 60)
    consumer.wait_for_log("action=policy_harms queue=mails.dlq", 60)
    assert consumer.log.count(told) == 1


def test_a_management_api_that_is_away_is_told_once_and_letters_are_drained(graveyard: Graveyard) -> None:
    consumer = graveyard.start(REDRIVE_MANAGEMENT_URL="http://127.0.0.1:1")
    consumer.wait_for_log("stuck letters cannot be seen: nothing answers at http://127.0.0.1:1")

    graveyard.bury("orders", order("job-1"))

    graveyard.until_stored(1)
    assert consumer.log.count("cannot be seen") == 1


def test_a_capped_dead_letter_queue_loses_letters_and_check_fails_before_one_is_lost(
    graveyard: Graveyard,
) -> None:
    def told() -> dict[str, Any]:
        done = graveyard.dlq_here("check", "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        wrong = {line["thing"]: line["detail"] for line in lines if not line["ok"]}
        assert done.exit_code == (1 if wrong else 0)
        return wrong if len(wrong) in (0, 3) else {}

    with (
        somebodys(graveyard.vhost, r"^orders\.dlq$", max_length=1),
        somebodys(graveyard.vhost, "^mails(.dlq)?$", kind="operator-policies", message_ttl=3_600_000),
    ):
        assert eventually(told, 30, "both policies are told of") == {
            "queue orders.dlq": "by policy 'theirs' its max-length is 1: once it is full its oldest letters"
            " are lost, or new ones wait, unseen, where they died. Run: topology verify",
            "queue mails.dlq": "by operator policy 'theirs' its message-ttl is 3600000: this dead-letter"
            " queue forgets: letters that wait longer are lost. Run: topology verify",
            "queue mails": "by operator policy 'theirs' its message-ttl is 3600000: jobs that wait longer are"
            " dead-lettered as expired. Run: topology verify",
        }
        for number in range(3):
            graveyard.bury("orders", order(f"job-{number}"))
        left = ("orders", "orders.dlq")
        eventually(lambda: sum(map(graveyard.depth, left)) == 1, 30, "two of three letters are lost")


def test_without_the_management_api_s_address_neither_starts(graveyard: Graveyard) -> None:
    del graveyard.settings["REDRIVE_MANAGEMENT_URL"]

    for arguments in (("consume",), ("check",)):
        refused = graveyard.dlq(*arguments)
        assert refused.returncode == 2
        assert "REDRIVE_MANAGEMENT_URL: not set, in the environment or in .env: " in refused.stderr
    eventually(lambda: graveyard.vhost.consumers("orders.dlq") == 0, 5, "nothing consumes")


def test_a_policy_that_loses_letters_is_told_of_once_and_when_it_is_gone(
    graveyard: Graveyard, caplog: pytest.LogCaptureFixture
) -> None:
    url, vhost = graveyard.vhost.management_url, graveyard.vhost.vhost
    watch = HarmWatch(url, vhost, TOPOLOGY, 1.0)

    def said() -> list[tuple[str, str]]:
        background.run(watch.look(management))
        return [(record.__dict__["action"], record.__dict__["queue"]) for record in caplog.records]

    with caplog.at_level(logging.INFO, "dlq_consumer.harmed"), Management(url) as management:
        with somebodys(graveyard.vhost, r"^orders\.dlq$", message_ttl=3_600_000):
            eventually(said, 30, "it is told")
            assert said() == [("policy_harms", "orders.dlq")]
        eventually(lambda: len(said()) > 1, 30, "it is told that it is gone")
        assert said() == [("policy_harms", "orders.dlq"), ("policy_mended", "orders.dlq")]
    assert "this dead-letter queue forgets" in caplog.text
