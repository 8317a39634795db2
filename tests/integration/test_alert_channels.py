"""Each channel gets each alert by itself: what one refuses neither delays nor repeats another's."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.graveyard import Graveyard, plain
from tests.support.processes import Processes
from tests.support.receiver import Receiver, receiver
from tests.support.stubs import RunningSink
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually

TOKEN, KEY = "apprise-token-7f3a", "sentrykey9c1e"


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


@pytest.fixture
def chat() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
def sentry() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def webhook(sink: RunningSink) -> dict[str, str]:
    return {"REDRIVE_ALERT_WEBHOOK_URL": sink.url, "REDRIVE_ALERT_WEBHOOK_SECRET": sink.secret}


def apprise(port: int) -> str:
    return f"json://user:{TOKEN}@127.0.0.1:{port}/{TOKEN}"


def every_channel(sink: RunningSink, chat: Receiver, sentry: Receiver) -> dict[str, str]:
    return webhook(sink) | {
        "REDRIVE_ALERT_APPRISE_URLS": apprise(chat.port),
        "REDRIVE_SENTRY_DSN": f"http://{KEY}@127.0.0.1:{sentry.port}/prefix/42",
    }


def deliveries(graveyard: Graveyard) -> dict[str, tuple[str, bool]]:
    """By channel: state, and whether it took more than one try."""
    rows = graveyard.database.fetch("select channel, state, tries from redrive.alert_deliveries")
    return {row["channel"]: (row["state"], row["tries"] > 1) for row in rows}


def die(graveyard: Graveyard, name: str = "m") -> None:
    graveyard.publish("orders.dlq", plain(b"x", message_id=name))


def test_every_channel_takes_the_alert_once_though_two_refuse_it_at_first(
    graveyard: Graveyard, sink: RunningSink, chat: Receiver, sentry: Receiver
) -> None:
    chat.failing, sentry.failing = [500], [429, 503]
    graveyard.settings |= every_channel(sink, chat, sentry)
    process = graveyard.start()
    die(graveyard)
    done = {
        "webhook": ("delivered", False),
        "apprise-1-json": ("delivered", True),
        "sentry": ("delivered", True),
    }
    eventually(lambda: deliveries(graveyard) == done, 40, "each channel has taken it")

    (alert,) = graveyard.database.fetch("select * from redrive.alerts")
    assert alert["state"] == "delivered"
    assert len(sink.client.received()) == len(chat.taken) == len(sentry.taken) == 1
    said = json.loads(chat.taken[0].body)
    assert said["type"] == "failure"
    assert said["title"] == "Redrive: a new group of dead letters: foreign, queue orders"
    assert f"dlq group {alert['fingerprint'][:12]}" in said["message"]
    event = _event(sentry)
    assert event["event_id"] == alert["id"].hex
    assert event["fingerprint"] == ["redrive", alert["fingerprint"]]
    assert event["extra"]["alert"]["group"]["queue"] == "orders"
    (last_errors,) = graveyard.database.fetch(
        "select string_agg(last_error, '') as text from redrive.alert_deliveries"
    )
    # What Apprise says is told once, by us, where its secrets are taken out.
    assert [
        line for line in process.log.splitlines() if "JSON" in line and "alert not delivered" not in line
    ] == []
    for text in (process.log, str(last_errors["text"])):
        assert TOKEN not in text
        assert KEY not in text


def _event(sentry: Receiver) -> dict[str, Any]:
    request = sentry.taken[0]
    assert request.path == "/prefix/api/42/envelope/"
    assert f"sentry_key={KEY}" in request.headers["x-sentry-auth"]
    head, item, payload = request.body.splitlines()
    assert json.loads(item) == {
        "type": "event", "content_type": "application/json", "length": len(payload),
    }  # fmt: skip
    event: dict[str, Any] = json.loads(payload)
    assert json.loads(head)["event_id"] == event["event_id"]
    return event


def test_apprise_that_hangs_holds_up_neither_letters_nor_the_webhook_nor_the_end(
    graveyard: Graveyard, sink: RunningSink
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        url = apprise(silent.getsockname()[1]) + "?rto=600"
        graveyard.settings |= webhook(sink)
        process = graveyard.start(REDRIVE_ALERT_APPRISE_URLS=url, REDRIVE_ALERT_TIMEOUT_S="3")
        die(graveyard)
        graveyard.until_stored(1)
        process.wait_for_log("no answer within 6 s", 40)
        assert deliveries(graveyard)["webhook"] == ("delivered", False)
        assert len(sink.client.received()) == 1
        die(graveyard, "m2")
        graveyard.until_stored(2)
        assert process.terminate() == 0


def test_a_test_alert_goes_through_every_channel(
    graveyard: Graveyard, sink: RunningSink, chat: Receiver, sentry: Receiver
) -> None:
    graveyard.settings |= every_channel(sink, chat, sentry)
    done = graveyard.dlq("alerts", "test")
    assert (done.returncode, done.stdout) == (0, "webhook: OK\napprise-1-json: OK\nsentry: OK\n"), done.stderr
    (delivery,) = sink.client.received()
    assert (
        delivery["body"]["kind"] == json.loads(sentry.taken[0].body.splitlines()[2])["tags"]["kind"] == "test"
    )
    assert json.loads(chat.taken[0].body)["type"] == "info"
    assert graveyard.database.fetch("select 1 from redrive.alerts") == []


def test_a_test_alert_that_one_channel_refuses_is_exit_1_and_the_others_get_it(
    graveyard: Graveyard, sink: RunningSink, chat: Receiver, sentry: Receiver
) -> None:
    graveyard.settings |= every_channel(sink, chat, sentry)
    chat.failing = [403]
    done = graveyard.dlq("alerts", "test")
    assert done.returncode == 1
    assert done.stdout.startswith("webhook: OK\napprise-1-json: ")
    assert "403" in done.stdout.splitlines()[1]
    assert len(sentry.taken) == 1
    assert TOKEN not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("REDRIVE_ALERT_APPRISE_URLS", f"json://hooks.example/ nowhere://{TOKEN}"),
        ("REDRIVE_ALERT_APPRISE_URLS", f"json://hooks.example/ jsons://10.0.0.1/{TOKEN}"),
        ("REDRIVE_SENTRY_DSN", f"http://127.0.0.1/{TOKEN}"),
        ("REDRIVE_SENTRY_DSN", f"https://key@169.254.169.254/{TOKEN}"),
        ("REDRIVE_ALERT_WEBHOOK_URL", f"https://localhost.:9/{TOKEN}"),
        ("REDRIVE_ALERT_WEBHOOK_URL", f"https://10.0.0.1/{TOKEN}"),
    ],
)
def test_a_channel_that_cannot_be_is_refused_by_name_without_its_secret(
    graveyard: Graveyard, setting: str, value: str
) -> None:
    graveyard.settings |= {setting: value, "REDRIVE_ALERT_WEBHOOK_SECRET": "s", "REDRIVE_ALERT_ALLOW": ""}
    for arguments in (("consume",), ("alerts", "test")):
        done = graveyard.dlq(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert setting in done.stderr
        assert TOKEN not in done.stderr


def test_without_a_channel_a_test_alert_is_wrong_usage(graveyard: Graveyard) -> None:
    done = graveyard.dlq_here("alerts", "test")
    assert done.exit_code == 2
    assert "REDRIVE_ALERT_APPRISE_URLS" in done.stderr
