"""Letters of a real dead-letter queue taken to another database, and replayed from there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support import letter_rows
from tests.support.databases import fresh_database
from tests.support.dlq_here import dlq_here
from tests.support.graveyard import DLQ, Graveyard, order, plain
from tests.support.memory import peak_bytes
from tests.support.processes import console_script
from tests.support.raw_lists import cut
from tests.support.shared import Places
from tests.support.strangers import any_kind
from tests.support.waiting import eventually

COUNT, SEED = 40, 7
HUGE = bytes(range(256)) * 16 * 1024  # 4 MiB; RabbitMQ 4 takes 16
MIB, LOCK = 1024 * 1024, 44
HOLD_THE_THIRD_BATCH = (
    f"""create function hold_batch() returns trigger language plpgsql as $$ begin
    if (select count(*) from redrive.dead_letters) = 14 then
    perform pg_advisory_xact_lock_shared({LOCK}); end if; return null; end $$""",
    """create trigger hold_batch before insert on redrive.dead_letters
    for each statement execute function hold_batch()""",
)
# Of the database that holds the letter, and not of the letter.
OWN = {"id", "session_id", "stored_at"}


@pytest.fixture
def graveyard(places: Places) -> Iterator[Graveyard]:
    with places.fresh() as (vhost, database, processes):
        yield Graveyard(vhost, database, processes)


@pytest.fixture
def other(graveyard: Graveyard, places: Places) -> Iterator[Graveyard]:
    """The same queues, another database."""
    with fresh_database(places.servers.urls.database, places.template_database) as database:
        yield replace(graveyard, database=database, settings={})


def kept(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in OWN}


def replay_all(graveyard: Graveyard) -> dict[int, tuple[bytes, bytes]]:
    """What a replay of every letter sends, by the place of the letter: properties without the token, body."""
    process = graveyard.start()
    done = graveyard.dlq_here("replay", "--queue", "orders", "--yes", "--no-wait")
    assert done.exit_code == 0, done.stderr
    unsent = "select count(*) from redrive.replay_items where state in ('staged', 'publishing')"
    eventually(lambda: graveyard.database.value(unsent) == 0, 60, "all have been sent")
    items = graveyard.database.fetch(
        "select token, (select count(*) from redrive.dead_letters l where l.id < letter_id) as place"
        " from redrive.replay_items where state = 'published'"
    )
    place = {item["token"].encode(): item["place"] for item in items}
    sent = {}
    for raw, body in graveyard.take_all("orders", len(items)):
        token = dict(cut(raw).headers or ())[b"redrive-replay"][5:]
        sent[place[token]] = (raw.replace(token, b"token"), body)
    process.kill()
    return sent


def test_letters_of_any_kind_are_replayed_from_another_database_as_from_their_own(
    graveyard: Graveyard, other: Graveyard, tmp_path: Path, broker_release: tuple[int, int]
) -> None:
    consumer = graveyard.start()
    sent = [
        *any_kind(COUNT, SEED, user=graveyard.address.user, odd_deaths=broker_release >= (4, 0)),
        plain(HUGE, message_id="huge"),
        plain(
            b'{"\\ud800": "a\\u0000b"}\x00', headers={"n": "a\x00b"}, content_type="a\x00b", message_id="nul"
        ),
        order("j-1"),
    ]
    graveyard.publish("orders", *sent)
    graveyard.reject("orders", len(sent))
    graveyard.until_stored(len(sent), 60)
    consumer.kill()
    # As after a batch that Postgres refused.
    graveyard.database.execute(
        "update redrive.dead_letters set state = 'quarantined' where message_id = 'nul'"
    )

    file = tmp_path / "letters.jsonl"
    out = graveyard.dlq_here("export", "--out", str(file))
    assert (out.exit_code, out.stderr) == (0, f"{len(sent)} letters exported\n")
    assert file.stat().st_mode & 0o777 == 0o600
    for place, why in ((file, "is there already"), (file / "none", "Not a directory")):
        refused = graveyard.dlq_here("export", "--out", str(place))
        assert (refused.exit_code, refused.stderr) == (1, f"dlq: {place}: {why}\n")
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["letters.jsonl"]
    through_a_pipe = graveyard.dlq("export").stdout.encode()
    assert through_a_pipe == file.read_bytes()
    done = other.dlq_here("import", str(file), "--yes", "--json")
    assert json.loads(done.stdout) == {"stored": len(sent), "known": 0, "bad": 0}, done.stderr

    there, here = graveyard.letters(), other.letters()
    assert [kept(row) for row in here] == [kept(row) for row in there]
    shown = other.shown(here[-1]["id"])
    assert (shown["imported_from"], shown["history"][0]["action"]) == (there[-1]["id"], "import")
    groups = (
        "select fingerprint, queue, task, reason, exception_type, top_frame, letters"
        " from redrive.groups order by fingerprint"
    )
    assert other.database.fetch(groups) == graveyard.database.fetch(groups)
    assert other.database.value("select count(*) from redrive.alerts") == 0

    again = other.dlq_here("import", str(file), "--yes", "--json")
    assert json.loads(again.stdout) == {"stored": 0, "known": len(sent), "bad": 0}
    back = other.dlq_here("export")
    returned = graveyard.dlq_here("import", "-", "--yes", "--json", typed=back.stdout)
    assert json.loads(returned.stdout) == {"stored": 0, "known": len(sent), "bad": 0}, returned.stderr

    from_here = replay_all(other)
    from_there = replay_all(graveyard)
    assert from_here == from_there
    assert len(from_here) > len(sent) * 0.8
    assert {body for _, body in from_here.values()} >= {HUGE, b""}


def test_what_was_done_with_a_letter_goes_with_it(
    graveyard: Graveyard, other: Graveyard, tmp_path: Path
) -> None:
    consumer = graveyard.start(REDRIVE_REDACT="kwargs.order")
    graveyard.failed_job("j1", "Traceback\nValueError: no")
    graveyard.bury("orders", order("j1"))
    graveyard.until_stored(1)
    graveyard.publish("mails.dlq", *(plain(b'{"n": 1}', message_id=name, content_type="application/json")
                                     for name in ("open", "gone")))  # fmt: skip
    task, letter, gone = (row["id"] for row in graveyard.until_stored(3))
    deep = "[" * 300 + "2" + "]" * 300
    patch = f'[{{"op": "replace", "path": "/n", "value": {deep}}}]'
    assert graveyard.dlq_here("edit", str(letter), "--patch", patch, "--by", "ada").exit_code == 0
    assert graveyard.dlq_here("discard", str(gone), "--note", "twice", "--by", "bob").exit_code == 0
    file = tmp_path / "letters.jsonl"
    assert graveyard.dlq_here("export", "--out", str(file)).exit_code == 0
    done = other.dlq_here("import", str(file), "--yes", "--note", "moved", "--by", "eve")
    assert (done.exit_code, done.stdout) == (0, "3 letters stored, 0 here already, 0 bad lines\n"), (
        done.stderr
    )

    job, edited, discarded = (other.shown(id_) for id_ in (1, 2, 3))
    assert job["redacted"] == ["kwargs.order"]
    assert job["attempts"] == graveyard.shown(task)["attempts"]
    (step,) = job["history"]
    assert (step["action"], step["by"], step["why"]) == ("import", "eve", "moved")
    assert (step["from"]["id"], step["from"]["state"]) == (task, "open")
    assert (job["attempts"][0]["traceback"], step["job"]["state"]) == ("Traceback\nValueError: no", "DEAD")
    assert "ValueError: no" in other.dlq_here("show", "1").stdout
    refused = other.dlq_here("replay", "1", "--no-wait")
    assert "values of it were redacted" in refused.stderr
    assert (edited["edit"]["body"]["text"], [each["by"] for each in edited["history"]]) == (
        f'{{"n": {deep}}}', ["ada", "eve"],
    )  # fmt: skip
    assert edited["history"][0]["edit"] == edited["edit"]["id"]
    assert [(each["by"], each.get("why")) for each in discarded["history"]] == [
        ("bob", "twice"),
        ("eve", "moved"),
    ]
    assert discarded["state"] == "discarded"
    assert other.dlq_here("restore", "3").exit_code == 0
    assert other.shown(3)["state"] == "open"

    # The first letter that comes by itself is told of, though its group is not new.
    consumer.kill()
    other.start()
    other.publish("mails.dlq", plain(b"x", message_id="fresh"))
    alerts = "select kind from redrive.alerts"
    assert eventually(lambda: other.database.fetch(alerts), 20, "an alert") == [{"kind": "seen_again"}]


def test_an_import_that_is_killed_is_run_again_and_holds_little(
    graveyard: Graveyard, other: Graveyard, tmp_path: Path
) -> None:
    letter_rows.prepare(graveyard.database)
    letter_rows.store_large(graveyard.database, 40)
    file = tmp_path / "letters.jsonl"
    assert graveyard.dlq_here("export", "--out", str(file)).exit_code == 0
    for statement in HOLD_THE_THIRD_BATCH:
        other.database.execute(statement)
    with other.holding(LOCK):
        arguments = console_script(DLQ, "import", str(file), "--yes")
        process = other.processes.start("import", arguments, other.settings)
        eventually(lambda: other.waits_for(LOCK), 60, "a batch waits")
        assert peak_bytes(process.pid) < 150 * MIB, "of 40 MiB of letters and itself"
        process.kill()
        killed = len(other.letters())
    assert killed == 14, "two of 8 MiB at most"
    again = other.dlq_here("import", str(file), "--yes", "--json")
    assert json.loads(again.stdout) == {"stored": 26, "known": 14, "bad": 0}, again.stderr
    assert len({row["identity"] for row in other.letters()}) == 40


def bent(line: bytes, change: str) -> bytes:
    letter = json.loads(line)
    match change:
        case "a byte of the body":
            letter["raw"]["body"] = "QUFBQQ=="
        case "no base64":
            letter["raw"]["body"] = letter["raw"]["body"][:-1] + "!"
        case "a byte of the properties":
            letter["raw"]["properties"] = letter["raw"]["properties"][4:]
        case "a digest":
            letter["body_sha256"] = "00" * 32
        case "a NUL":
            letter["task"] = "a\x00b"
        case "a later format":
            letter["format"] = 2
        case "no id":
            del letter["id"]
        case "half":
            return line[: len(line) // 2] + b"\n"
        case "no JSON":
            return b"\xff\xfe\n"
        case "deep":
            return b"[" * 100_000 + b"\n"
    return json.dumps(letter).encode() + b"\n"


BAD = {
    "a byte of the body": "raw: Value error, body_sha256 is not that of body",
    "no base64": "raw.body: Value error, is no base64",
    "a byte of the properties": "raw: Value error, properties_sha256 is not that of properties",
    "a digest": "body_sha256 is not that of the bytes",
    "a NUL": "task: Value error, holds a NUL",
    "a later format": "format: Input should be 1",
    "no id": "id: Field required",
    "half": "Invalid JSON",
    "no JSON": "Invalid JSON",
    "deep": "is nested too deeply",
}


def test_bad_lines_are_named_and_keep_the_file_out(
    graveyard: Graveyard, other: Graveyard, tmp_path: Path
) -> None:
    graveyard.start()
    graveyard.publish("mails.dlq", *(plain(b"%d" % n, message_id=str(n)) for n in range(len(BAD) + 2)))
    graveyard.until_stored(len(BAD) + 2)
    lines = graveyard.dlq_here("export").stdout_bytes.splitlines(keepends=True)
    changed = [bent(line, change) for line, change in zip(lines[1:], BAD, strict=False)]
    file = tmp_path / "letters.jsonl"
    file.write_bytes(b"".join([lines[0], *changed, b"\n", lines[-1], lines[0]]))

    def run(*options: str) -> Result:
        return dlq_here(other.settings, other.processes.directory, "import", str(file), "--yes", *options)

    refused = run()
    assert (refused.exit_code, other.letters()) == (1, [])
    told = refused.stderr.splitlines()
    for number, (name, why) in enumerate(BAD.items(), start=2):
        assert told[number - 2].startswith(f"dlq: line {number}: "), name
        assert why in told[number - 2], name
    assert "nothing is stored" in told[-1]
    looked = json.loads(run("--dry-run", "--skip-bad", "--json").stdout)
    assert (looked["letters"], looked["bad"], other.letters()) == (3, len(BAD), [])
    skipped = run("--skip-bad", "--json")
    assert skipped.exit_code == 1
    assert json.loads(skipped.stdout) == {"stored": 2, "known": 1, "bad": len(BAD)}
    assert [row["message_id"] for row in other.letters()] == ["0", str(len(BAD) + 1)]
