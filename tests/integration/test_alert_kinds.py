"""What alerts beside a first letter: storms, regressions, what is well again, queues that nobody drains."""

from __future__ import annotations

import json
from typing import Any

import pytest

from storage.sessions import Source
from tests.support.databases import Database
from tests.support.graveyard import Graveyard, plain
from tests.support.processes import Processes
from tests.support.stubs import RunningSink
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes, sink: RunningSink) -> Graveyard:
    made = Graveyard(vhost, database, processes)
    made.settings |= {"REDRIVE_ALERT_WEBHOOK_URL": sink.url, "REDRIVE_ALERT_WEBHOOK_SECRET": sink.secret}
    return made


def die(graveyard: Graveyard, first: int, count: int, queue: str = "orders.dlq") -> None:
    graveyard.publish(queue, *(plain(b"x", message_id=f"{queue}{first + n}") for n in range(count)))


def kinds(sink: RunningSink) -> list[str]:
    return [each["body"]["kind"] for each in sink.client.received()]


def until_told(sink: RunningSink, *wanted: str) -> list[dict[str, Any]]:
    eventually(lambda: kinds(sink) == list(wanted), 40, f"alerts {wanted}")
    return [each["body"] for each in sink.client.received()]


def first_group(graveyard: Graveyard, sink: RunningSink) -> str:
    """Fingerprint of a group that a running consumer has told of."""
    graveyard.start()
    die(graveyard, 0, 1)
    (first,) = until_told(sink, "first_seen")
    return str(first["group"]["fingerprint"])


def test_a_storm_over_many_batches_and_two_queues_makes_one_alert_for_each_group(
    graveyard: Graveyard, sink: RunningSink
) -> None:
    """Far above the threshold of the rate: the first alert has told of it."""
    graveyard.start(REDRIVE_DLQ_BATCH_LETTERS="50", REDRIVE_ALERT_RATE_LETTERS="100")
    for number in range(4):
        for queue in ("orders.dlq", "mails.dlq"):
            die(graveyard, 150 * number, 150, queue)
    graveyard.until_stored(1200, 60)
    eventually(lambda: len(kinds(sink)) == 2, 20, "both are told")

    assert {(each["body"]["kind"], each["body"]["group"]["queue"]) for each in sink.client.received()} == {
        ("first_seen", "orders"),
        ("first_seen", "mails"),
    }
    assert graveyard.database.value("select count(*) from redrive.alerts") == 2


def test_a_group_that_grows_fast_alerts_once(graveyard: Graveyard, sink: RunningSink) -> None:
    graveyard.start(REDRIVE_ALERT_RATE_LETTERS="30", REDRIVE_DLQ_BATCH_LETTERS="10")
    die(graveyard, 0, 1)
    until_told(sink, "first_seen")
    graveyard.database.execute("update redrive.alert_subjects set alerted_at = now() - interval '1 hour'")

    die(graveyard, 1, 20)
    graveyard.until_stored(21)
    assert kinds(sink) == ["first_seen"]
    die(graveyard, 21, 100)
    graveyard.until_stored(121)
    until_told(sink, "first_seen", "rate")
    assert graveyard.database.value("select count(*) from redrive.alerts") == 2


def test_what_an_operator_resolved_is_told_and_so_is_the_letter_that_comes_after_all(
    graveyard: Graveyard, sink: RunningSink
) -> None:
    print_ = first_group(graveyard, sink)
    assert graveyard.dlq_here("group", print_, "resolve", "--by", "ada", "--note", "mended").exit_code == 0
    _, resolved = until_told(sink, "first_seen", "resolved")
    assert resolved["detail"] == "resolved by ada: mended"
    die(graveyard, 1, 1)
    until_told(sink, "first_seen", "resolved", "regression")


def test_a_snoozed_group_is_written_down_and_told_of_when_the_snooze_ends(
    graveyard: Graveyard, sink: RunningSink
) -> None:
    print_ = first_group(graveyard, sink)
    done = graveyard.dlq_here("alerts", "snooze", print_[:8], "--for", "2h", "--by", "ada", "--note", "known")
    assert (done.exit_code, done.stdout.partition(":")[0]) == (0, print_)
    graveyard.database.execute("update redrive.groups set last_seen = now() - interval '2 hours'")
    die(graveyard, 1, 1)
    graveyard.until_stored(2)
    newest = json.loads(graveyard.dlq_here("alerts", "--json").stdout.splitlines()[0])
    assert (newest["kind"], newest["state"], newest["deliveries"]) == ("seen_again", "snoozed", [])

    assert graveyard.dlq_here("alerts", "unsnooze", print_[:8], "--by", "bob").exit_code == 0
    die(graveyard, 2, 1)
    until_told(sink, "first_seen", "seen_again")
    rows = graveyard.database.fetch(
        "select by, note, until is null as ended from redrive.alert_snoozes order by id"
    )
    assert [tuple(row.values()) for row in rows] == [("ada", "known", False), ("bob", None, True)]
    listed = graveyard.dlq_here("alerts", "--kind", "seen_again", "--state", "delivered")
    assert "webhook delivered" in listed.stdout


def test_a_queue_that_nobody_drains_alerts_until_somebody_does(
    graveyard: Graveyard, sink: RunningSink
) -> None:
    """Its lock is held by a process that does not consume; another's consumer counts as one."""
    cluster = graveyard.vhost.management.get("/api/cluster-name").raise_for_status().json()["name"]
    lock = Source(cluster, graveyard.vhost.vhost, "mails.dlq").lock
    with graveyard.holding(lock):
        process = graveyard.start(REDRIVE_ALERT_NO_CONSUMER_S="10")
        (wrong,) = until_told(sink, "no_consumer")
        assert wrong["subject"] == f"no_consumer://{graveyard.vhost.vhost}/mails.dlq"
        assert (wrong["group"], wrong["letter_id"]) == (None, None)
        assert "queue mails.dlq" in wrong["detail"]
    process.wait_for_log("draining mails.dlq", 40)
    until_told(sink, "no_consumer", "resolved")


def test_an_old_undecided_letter_alerts_until_it_is_decided(graveyard: Graveyard, sink: RunningSink) -> None:
    graveyard.start(REDRIVE_ALERT_OLDEST_S="3600")
    die(graveyard, 0, 1)
    (letter,) = graveyard.until_stored(1)
    graveyard.database.execute("update redrive.dead_letters set stored_at = now() - interval '2 hours'")
    _, old = until_told(sink, "first_seen", "oldest_undecided")
    assert (old["letter_id"], old["subject"]) == (letter["id"], "oldest_undecided")
    graveyard.database.execute("update redrive.dead_letters set state = 'discarded'")
    until_told(sink, "first_seen", "oldest_undecided", "resolved")
