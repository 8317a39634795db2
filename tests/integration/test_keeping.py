"""What of a letter is stored, and for how long: redaction and retention of a running consumer."""

from __future__ import annotations

import json

import pytest

from storage.migrate import migrations
from tests.support.databases import Database, migrate_to
from tests.support.graveyard import Graveyard, plain
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.messages import task_message

SECRET = b"4111-secret"


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


def holding(database: Database, secret: bytes) -> list[str]:
    """Tables with these bytes anywhere in them, as text or as bytes."""
    tables = database.fetch(
        "select 'redrive.' || tablename as name from pg_tables where schemaname = 'redrive'"
    )
    forms = [f"%{secret.decode()}%", f"%{secret.hex()}%"]
    return [
        table["name"]
        for table in tables
        if database.value(f"select count(*) from {table['name']} t where t::text like any($1::text[])", forms)
    ]


def test_redacted_values_are_nowhere_and_their_letter_is_sent_once_they_are_filled_in(
    graveyard: Graveyard,
) -> None:
    graveyard.start(REDRIVE_REDACT="kwargs.order,body.pin,headers.authorization")
    graveyard.bury("orders", task_message("j1", "orders.place", {"order": SECRET.decode()}))
    graveyard.publish("orders.dlq", plain(SECRET + b" no JSON", headers={"authorization": SECRET.decode()}))
    task, odd = graveyard.until_stored(2)
    shown = graveyard.shown(task["id"])
    assert (shown["redacted"], shown["body"]["json"][1]) == (["kwargs.order"], {"order": "[redacted]"})
    assert shown["headers"]["kwargsrepr"] == "[redacted]"
    assert graveyard.shown(odd["id"])["redacted"] == ["headers.authorization"]
    # The one body that is no JSON is kept whole.
    assert holding(graveyard.database, SECRET) == ["redrive.dead_letters"]
    graveyard.database.execute("update redrive.dead_letters set body = '' where id = $1", odd["id"])
    assert holding(graveyard.database, SECRET) == []

    letter = str(task["id"])
    refused = graveyard.dlq_here("replay", letter, "--no-wait")
    assert (refused.exit_code, "values of it were redacted: dlq edit" in refused.stderr) == (1, True)
    survey = graveyard.dlq_here("replay", "--queue", "orders", "--dry-run", "--json")
    assert json.loads(survey.stdout)["left_out"] == {"values of it were redacted: dlq edit": 2}
    patch = '[{"op": "add", "path": "/kwargs/other", "value": 1}]'
    half = graveyard.dlq_here("edit", letter, "--patch", patch)
    assert (half.exit_code, "kwargs.order: was redacted" in half.stderr) == (1, True)
    patch = '[{"op": "replace", "path": "/kwargs/order", "value": "9"}]'
    assert graveyard.dlq_here("edit", letter, "--patch", patch).exit_code == 0
    assert graveyard.dlq_here("replay", letter, "--no-wait").exit_code == 0
    sent, _, body = graveyard.take("orders")
    assert (json.loads(body)[1], sent.get_header("kwargsrepr")) == ({"order": "9"}, "{'order': '9'}")


def test_a_redacted_letter_waits_in_its_queue_for_a_schema_that_can_say_so(
    vhost: Vhost, empty_database: Database, processes: Processes
) -> None:
    level = next(each.level for each in migrations() if "letter_actions" in each.name) - 1
    migrate_to(empty_database.url, level)
    graveyard = Graveyard(vhost, empty_database, processes)
    consumer = graveyard.start(REDRIVE_REDACT="body.pin")
    graveyard.publish("mails.dlq", plain(b'{"pin": "4111-secret"}', message_id="m"))
    consumer.wait_for_log("REDRIVE_REDACT needs the schema of this release")
    assert graveyard.letters() == []
    migrate_to(empty_database.url, len(migrations()))
    (letter,) = graveyard.until_stored(1)
    assert letter["body"] == b'{"pin": "[redacted]"}'


def test_a_decided_letter_expires_and_is_not_new_when_it_comes_again(graveyard: Graveyard) -> None:
    first = graveyard.start()
    graveyard.publish("mails.dlq", *(plain(b"x", message_id=name) for name in ("gone", "kept")))
    gone, kept = graveyard.until_stored(2)
    assert graveyard.dlq_here("discard", str(gone["id"]), "--note", "n").exit_code == 0
    first.kill()
    second = graveyard.start(REDRIVE_RETENTION_DAYS="0.000001", REDRIVE_RETENTION_BATCH="1")
    graveyard.until_stored(1)
    second.wait_for_log("letters and alerts expired")
    assert [row["id"] for row in graveyard.letters()] == [kept["id"]]
    graveyard.publish("mails.dlq", plain(b"x", message_id="gone"), plain(b"y", message_id="new"))
    eventually(lambda: graveyard.depth("mails.dlq") == 0, 20, "both are drained")
    assert [row["message_id"] for row in graveyard.until_stored(2)] == ["kept", "new"]
