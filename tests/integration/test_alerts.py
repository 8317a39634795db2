"""One alert for each group, signed, after the commit, however often the receiver fails."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Iterator

import pytest

from tests.support.databases import Database
from tests.support.graveyard import Graveyard, plain
from tests.support.ports import free_port
from tests.support.processes import Process, Processes
from tests.support.sink import Sink, sink
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually

SECRET = "hush"


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


@pytest.fixture
def receiver() -> Iterator[Sink]:
    with sink() as made:
        yield made


def start(graveyard: Graveyard, url: str, **settings: str) -> Process:
    return graveyard.start(REDRIVE_ALERT_WEBHOOK_URL=url, REDRIVE_ALERT_WEBHOOK_SECRET=SECRET, **settings)  # type: ignore[arg-type]


def die(graveyard: Graveyard, count: int, first: int = 0) -> None:
    graveyard.publish("orders.dlq", *(plain(b"x", message_id=f"m{first + n}") for n in range(count)))


def states(graveyard: Graveyard) -> list[str]:
    rows = graveyard.database.fetch("select state from redrive.alerts order by created_at")
    return [row["state"] for row in rows]


def test_two_hundred_letters_of_one_group_make_one_signed_alert(graveyard: Graveyard, receiver: Sink) -> None:
    start(graveyard, receiver.url, REDRIVE_DLQ_BATCH_LETTERS="20")
    die(graveyard, 200)
    graveyard.until_stored(200)
    eventually(lambda: states(graveyard) == ["delivered"], 10, "the alert is delivered")

    ((headers, body),) = receiver.received
    alert = json.loads(body)
    (group,) = graveyard.database.fetch("select * from redrive.groups")
    assert (alert["kind"], alert["group"]["fingerprint"]) == ("first_seen", group["fingerprint"])
    assert (alert["group"]["queue"], alert["group"]["reason"]) == ("orders", "foreign")
    assert alert["letter_id"] == graveyard.letters()[0]["id"]
    assert headers["redrive-delivery"] == alert["id"]
    parts = dict(part.split("=") for part in headers["redrive-signature"].split(","))
    assert abs(int(parts["t"]) - time.time()) < 60
    digest = hmac.new(SECRET.encode(), f"{parts['t']}.".encode() + body, hashlib.sha256).hexdigest()
    assert parts["v1"] == digest
    assert group["letters"] == 200


def test_a_failing_receiver_gets_it_again_and_the_drain_goes_on(graveyard: Graveyard, receiver: Sink) -> None:
    receiver.answers = [500, 503]
    start(graveyard, receiver.url)
    die(graveyard, 1)
    eventually(lambda: len(receiver.received) >= 1, 10, "the first try")
    die(graveyard, 50, first=1)
    graveyard.until_stored(51)
    eventually(lambda: states(graveyard) == ["delivered"], 20, "the third try is taken")

    assert len({headers["redrive-delivery"] for headers, _ in receiver.received}) == 1
    assert len(receiver.received) == 3


def test_a_receiver_that_is_down_is_tried_until_it_is_up_also_after_a_crash(
    graveyard: Graveyard, receiver: Sink
) -> None:
    process = start(graveyard, f"http://127.0.0.1:{free_port()}/hook")
    die(graveyard, 1)
    process.wait_for_log("alert not delivered")
    process.kill()
    assert states(graveyard) == ["pending"]
    start(graveyard, receiver.url)
    eventually(lambda: len(receiver.received) == 1, 40, "delivered by the next process")
    assert SECRET not in process.log


def test_a_group_alerts_again_after_a_silence(graveyard: Graveyard, receiver: Sink) -> None:
    start(graveyard, receiver.url)
    die(graveyard, 1)
    eventually(lambda: len(receiver.received) == 1, 10, "first seen")
    graveyard.database.execute("update redrive.groups set last_seen = now() - interval '2 hours'")
    die(graveyard, 2, first=1)
    eventually(lambda: len(receiver.received) == 2, 10, "seen again")
    assert [json.loads(body)["kind"] for _, body in receiver.received] == ["first_seen", "seen_again"]


def test_without_a_channel_alerts_are_written_down_and_not_sent_later(
    graveyard: Graveyard, receiver: Sink
) -> None:
    process = graveyard.start()
    die(graveyard, 1)
    graveyard.until_stored(1)
    assert states(graveyard) == ["no_channel"]
    assert "no_alert_channel" in process.log


def test_a_url_without_a_secret_is_refused_by_name(graveyard: Graveyard) -> None:
    process = graveyard.start(ready=False, REDRIVE_ALERT_WEBHOOK_URL="http://127.0.0.1:1/")
    assert process.wait() == 2
    assert "REDRIVE_ALERT_WEBHOOK_SECRET" in process.log
