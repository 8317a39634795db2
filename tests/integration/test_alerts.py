"""One alert for each group, signed, after the commit, however often the receiver fails."""

from __future__ import annotations

import socket

import pytest

from tests.support.databases import Database
from tests.support.graveyard import Graveyard, plain
from tests.support.ports import free_port
from tests.support.processes import Process, Processes
from tests.support.stubs import RunningSink
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


def start(graveyard: Graveyard, sink: RunningSink, url: str = "", **settings: str) -> Process:
    channel = {"REDRIVE_ALERT_WEBHOOK_URL": url or sink.url, "REDRIVE_ALERT_WEBHOOK_SECRET": sink.secret}
    return graveyard.start(**channel, **settings)  # type: ignore[arg-type]


def die(graveyard: Graveyard, count: int, first: int = 0) -> None:
    graveyard.publish("orders.dlq", *(plain(b"x", message_id=f"m{first + n}") for n in range(count)))


def states(graveyard: Graveyard) -> list[str]:
    rows = graveyard.database.fetch("select state from redrive.alerts order by created_at")
    return [row["state"] for row in rows]


def test_two_hundred_letters_of_one_group_make_one_signed_alert(
    graveyard: Graveyard, sink: RunningSink
) -> None:
    start(graveyard, sink, REDRIVE_DLQ_BATCH_LETTERS="20")
    die(graveyard, 200)
    graveyard.until_stored(200)
    eventually(lambda: states(graveyard) == ["delivered"], 10, "the alert is delivered")

    # The sink takes what is signed right, and nothing else.
    (delivery,) = sink.client.received()
    alert = delivery["body"]
    (group,) = graveyard.database.fetch("select * from redrive.groups")
    assert (alert["kind"], alert["group"]["fingerprint"]) == ("first_seen", group["fingerprint"])
    assert (alert["group"]["queue"], alert["group"]["reason"]) == ("orders", "foreign")
    assert alert["letter_id"] == graveyard.letters()[0]["id"]
    assert delivery["delivery"] == alert["id"]
    assert sink.client.refused() == []
    assert group["letters"] == 200


def test_a_failing_receiver_gets_it_again_and_the_drain_goes_on(
    graveyard: Graveyard, sink: RunningSink
) -> None:
    sink.client.fail(500, 503)
    start(graveyard, sink)
    die(graveyard, 1)
    eventually(sink.client.failed, 10, "the first try")
    die(graveyard, 50, first=1)
    graveyard.until_stored(51)
    eventually(lambda: states(graveyard) == ["delivered"], 20, "the third try is taken")

    tries = [*sink.client.failed(), *sink.client.received()]
    assert [each.get("answered") for each in tries] == [500, 503, None]
    assert len({each["delivery"] for each in tries}) == 1


def test_a_receiver_that_hangs_holds_up_no_letter(graveyard: Graveyard, sink: RunningSink) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/hook"
        process = start(graveyard, sink, url, REDRIVE_ALERT_TIMEOUT_S="2")
        die(graveyard, 1)
        graveyard.until_stored(1)
        for number in range(3):
            die(graveyard, 20, first=1 + 20 * number)
            graveyard.until_stored(21 + 20 * number)
        process.wait_for_log("alert not delivered", 30)
        assert states(graveyard) == ["sending"]
        assert process.exit_code is None


def test_a_receiver_that_is_down_is_tried_until_it_is_up_also_after_a_crash(
    graveyard: Graveyard, sink: RunningSink
) -> None:
    process = start(graveyard, sink, f"http://127.0.0.1:{free_port()}/hook")
    die(graveyard, 1)
    process.wait_for_log("alert not delivered")
    process.kill()
    assert states(graveyard) == ["sending"]
    start(graveyard, sink)
    eventually(lambda: len(sink.client.received()) == 1, 40, "delivered by the next process")
    assert sink.secret not in process.log


def test_a_group_alerts_again_after_a_silence(graveyard: Graveyard, sink: RunningSink) -> None:
    start(graveyard, sink)
    die(graveyard, 1)
    eventually(lambda: len(sink.client.received()) == 1, 10, "first seen")
    graveyard.database.execute("update redrive.groups set last_seen = now() - interval '2 hours'")
    die(graveyard, 2, first=1)
    eventually(lambda: len(sink.client.received()) == 2, 10, "seen again")
    assert [each["body"]["kind"] for each in sink.client.received()] == ["first_seen", "seen_again"]


def test_without_a_channel_alerts_are_written_down_and_not_sent_later(graveyard: Graveyard) -> None:
    process = graveyard.start()
    die(graveyard, 1)
    graveyard.until_stored(1)
    assert states(graveyard) == ["no_channel"]
    assert "no_alert_channel" in process.log


def test_a_url_without_a_secret_is_refused_by_name(graveyard: Graveyard) -> None:
    process = graveyard.start(ready=False, REDRIVE_ALERT_WEBHOOK_URL="http://127.0.0.1:1/")
    assert process.wait() == 2
    assert "REDRIVE_ALERT_WEBHOOK_SECRET" in process.log
