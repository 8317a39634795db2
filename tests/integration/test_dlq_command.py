"""The `dlq` command: what it prints, and how it ends."""

from __future__ import annotations

import json
import signal
from urllib.parse import urlsplit

import pytest

from tests.support.databases import Database, migrate
from tests.support.graveyard import Graveyard, order, plain
from tests.support.processes import Processes
from tests.support.vhosts import Vhost

# What every surface shows of a letter.
NAMES = {
    "id", "queue", "reason", "state", "message_id", "job_id", "task", "group", "body_sha256", "body_size",
    "dead_at", "stored_at", "deaths", "headers", "attempts", "replays",
}  # fmt: skip


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


def test_list_filters_and_shows_the_agreed_names(graveyard: Graveyard) -> None:
    graveyard.start()
    graveyard.failed_job("job-1", "Traceback: no")
    graveyard.bury("orders", order("job-1"))
    group = graveyard.until_stored(1)[0]["fingerprint"]  # each queue is drained by itself
    graveyard.bury("mails", plain(b"\xff" + rb'{"a": "\u00e4\\b"}'))
    graveyard.until_stored(2)

    assert [letter.keys() >= NAMES for letter in graveyard.listed()] == [True, True]
    for wanted, jobs in [
        (("--queue", "orders"), ["job-1"]),
        (("--queue", "orders.dlq"), ["job-1"]),
        (("--queue", "mails"), [None]),
        (("--reason", "exception"), ["job-1"]),
        (("--task", "orders.place"), ["job-1"]),
        (("--state", "replayed"), []),
        (("--undecided",), [None, "job-1"]),
        (("--job", "job-1"), ["job-1"]),
        (("--exception", "ValueError"), ["job-1"]),
        (("--exception", "KeyError"), []),
        (("--since", "1h"), [None, "job-1"]),
        (("--until", "1h ago"), []),
        (("--since", "1h", "--until", "2999-01-01", "--text", "order"), ["job-1"]),
        (("--text", "ä\\b"), [None]),
        (("--group", group), ["job-1"]),
        (("--limit", "1"), [None]),
    ]:
        assert [letter["job_id"] for letter in graveyard.listed(*wanted)] == jobs
    table = graveyard.dlq("list").stdout.splitlines()
    assert table[0].split() == ["ID", "QUEUE", "REASON", "STATE", "TASK", "JOB", "EXCEPTION", "DEAD", "AT"]
    assert len(table) == 3


def test_nothing_in_a_letter_reaches_the_terminal_as_a_command(graveyard: Graveyard) -> None:
    graveyard.start()
    escape = "\x1b]0;owned\x07\n"
    message = plain(
        escape.encode(),
        message_id=escape,
        content_type="text/plain",
        headers={escape: escape, "task": escape},
    )
    graveyard.bury("orders", message)
    (letter,) = graveyard.until_stored(1)

    for done in (graveyard.dlq("list"), graveyard.dlq("show", str(letter["id"]))):
        assert done.returncode == 0
        assert "\x1b" not in done.stdout
        assert "\x07" not in done.stdout
        assert "owned" in done.stdout


def test_show_prints_the_dossier(graveyard: Graveyard) -> None:
    graveyard.start()
    graveyard.failed_job("job-1", 'File "/a/b/c.py", line 1, in f\nValueError: no')
    graveyard.bury("orders", order("job-1"))
    (letter,) = graveyard.until_stored(1)

    printed = graveyard.dlq("show", str(letter["id"])).stdout
    shown = graveyard.shown(letter["id"])
    assert ["vhost", graveyard.vhost.vhost] in [line.split() for line in printed.splitlines()]
    for words in ("rejected by its consumer in orders", "ValueError: no", '"order": "1"', "redrive-attempt"):
        assert words in printed
    assert shown["body"]["json"][1] == {"order": "1"}
    assert shown["attempts"][0]["traceback"].endswith("ValueError: no")
    assert shown["job"]["state"] == "DEAD"
    assert shown["properties"]["message_id"] == "job-1"


def test_a_letter_that_is_not_there_ends_with_1(graveyard: Graveyard) -> None:
    done = graveyard.dlq("show", "99")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no dead letter 99" in done.stderr


def test_wrong_usage_ends_with_2(graveyard: Graveyard) -> None:
    for arguments in (
        ("show", "x"),
        ("replay",),
        ("list", "--state", "gone"),
        ("replay", "1", "--rate", "0"),
        # Left empty by a script: of the text every letter would match.
        ("discard", "--text", "", "--note", "no", "--yes"),
        ("replay", "--queue", "", "--yes"),
        ("groups", "--task", ""),
        ("list", "--reason", "exeption"),
    ):
        assert graveyard.dlq_here(*arguments).exit_code == 2, arguments
    del graveyard.settings["REDRIVE_DATABASE_URL"]
    done = graveyard.dlq("list")
    assert done.returncode == 2
    assert "REDRIVE_DATABASE_URL" in done.stderr


def test_a_database_that_is_away_ends_with_1_and_a_sentence(graveyard: Graveyard) -> None:
    graveyard.settings["REDRIVE_DATABASE_URL"] = "postgresql://u:secret@127.0.0.1:1/d"
    done = graveyard.dlq("list")
    assert done.returncode == 1
    assert "Postgres is away" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_that_is_not_migrated_is_named_with_the_command_to_run(
    graveyard: Graveyard, empty_database: Database
) -> None:
    graveyard.settings["REDRIVE_DATABASE_URL"] = empty_database.url
    for arguments in (("list",), ("show", "1"), ("replay", "1"), ("replays",)):
        done = graveyard.dlq(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"/{empty_database.name}: the schema is at level 0" in done.stderr
        assert "Run: storage migrate" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("user", "name", "said"),
    [("nobody-of-that-name", None, "nobody-of-that-name"), (None, "gone", 'database "gone" does not exist')],
)
def test_a_database_that_refuses_ends_with_1_and_its_words(
    graveyard: Graveyard, user: str | None, name: str | None, said: str
) -> None:
    url = urlsplit(graveyard.settings["REDRIVE_DATABASE_URL"])
    netloc = f"{user}:secret@{url.hostname}:{url.port}" if user else url.netloc
    graveyard.settings["REDRIVE_DATABASE_URL"] = url._replace(
        netloc=netloc, path=f"/{name}" if name else url.path
    ).geturl()
    done, checked = graveyard.dlq("list"), graveyard.dlq("check")
    assert (done.returncode, checked.returncode) == (1, 1)
    assert said in done.stderr
    assert said in checked.stdout
    assert "Traceback" not in done.stderr + checked.stderr


def test_the_consumer_waits_for_the_migration(graveyard: Graveyard, empty_database: Database) -> None:
    process = graveyard.start(ready=False, REDRIVE_DATABASE_URL=empty_database.url)
    process.wait_for_log("Run: storage migrate")
    migrate(empty_database.url)
    process.wait_for_log("draining orders.dlq")


def test_check_says_of_each_thing_whether_it_is_there(graveyard: Graveyard) -> None:
    before = graveyard.dlq("check")
    idle = graveyard.dlq("check", "--running")
    process = graveyard.start()
    process.wait_for_log("draining redrive.unrouted.dlq")
    process.wait_for_log("draining mails.dlq")
    running = graveyard.dlq("check", "--running")
    with graveyard.vhost.channel() as channel:
        channel.queue_delete("mails.dlq")
    after = graveyard.dlq("check")
    told = [json.loads(line) for line in graveyard.dlq("check", "--json").stdout.splitlines()]

    assert (before.returncode, idle.returncode, running.returncode, after.returncode) == (0, 1, 0, 1)
    assert "queue orders.dlq: OK (0 letters wait, 1 consumers)" in running.stdout
    assert "queue orders.dlq: no consumer, 0 letters wait. Run: dlq consume" in idle.stdout
    assert "queue mails.dlq" in after.stdout
    assert [each["thing"] for each in told if not each["ok"]] == ["queue mails.dlq"]
    assert {"database", "broker", "queue", "groups:", "stuck", "exchanges", "policies"} == {
        line.split()[0] for line in running.stdout.splitlines() + after.stdout.splitlines()
    }
    assert "Run: topology apply" in after.stdout


def test_a_queue_of_live_jobs_is_never_drained(graveyard: Graveyard) -> None:
    for name in ("orders", "orders.retry.250ms"):
        process = graveyard.start(ready=False, REDRIVE_WATCH=name)
        assert process.wait() == 2
        assert f"REDRIVE_WATCH: {name}" in process.log


def test_an_interrupt_ends_it_with_130(graveyard: Graveyard) -> None:
    process = graveyard.start()
    process.send(signal.SIGINT)
    assert process.wait() == 130


def test_json_lists_are_one_object_a_line(graveyard: Graveyard) -> None:
    graveyard.start()
    graveyard.publish("orders.dlq", plain(b"a\nb", message_id="1"), plain(b"c", message_id="2"))
    graveyard.until_stored(2)
    lines = graveyard.dlq("list", "--json").stdout.splitlines()
    assert [json.loads(line)["message_id"] for line in lines] == ["2", "1"]


def test_a_replay_is_printed_when_it_is_closed(graveyard: Graveyard) -> None:
    graveyard.failed_job("job-1", "Traceback: no")
    graveyard.bury("orders", order("job-1"))
    # Settled at once, by a worker as quick as can be: the plan is closed in a step of its own.
    graveyard.database.execute(
        "create function at_once() returns trigger language plpgsql as $$ begin"
        " update redrive.jobs set state = 'SUCCEEDED' where state = 'QUEUED'; return null; end $$"
    )
    graveyard.database.execute(
        "create trigger at_once after update on redrive.replay_items for each row"
        " when (new.state = 'published' and new.outcome is null) execute function at_once()"
    )
    graveyard.start()
    (letter,) = graveyard.until_stored(1)
    done = graveyard.dlq("replay", str(letter["id"]), "--json")

    plan = json.loads(done.stdout)
    assert (done.returncode, plan["state"], plan["items"][0]["outcome"]) == (0, "done", "succeeded")
    assert plan["finished_at"] is not None
