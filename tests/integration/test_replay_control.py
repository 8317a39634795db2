"""Replays that are paused, resumed, cancelled, begun with a canary or stopped by a breaker."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pika
import pytest

from tests.support.graveyard import DLQ, Graveyard, order, plain, shared_graveyard
from tests.support.processes import clean_environment, console_script
from tests.support.shared import Places, Shared
from tests.support.waiting import eventually
from topology.names import step
from topology.spec import Ladder


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Graveyard]]:
    with shared_graveyard(places, Graveyard) as made:
        yield made


@pytest.fixture
def graveyard(shared: Shared[Graveyard], request: pytest.FixtureRequest) -> Iterator[Graveyard]:
    with shared.lent(request.node) as lent:
        yield lent


def dead(graveyard: Graveyard, count: int, queue: str = "mails") -> list[str]:
    """Ids of letters that are no jobs: as they come from a work queue in which they were rejected."""
    before = len(graveyard.letters())
    graveyard.publish(queue, *(plain(b"x", message_id=f"{queue}-{before}-{n}") for n in range(count)))
    graveyard.reject(queue, count)
    return [str(row["id"]) for row in graveyard.until_stored(before + count)[before:]]


def dead_jobs(graveyard: Graveyard, count: int) -> list[str]:
    before = len(graveyard.letters())
    for number in range(count):
        graveyard.failed_job(f"job-{number}", "Traceback: no")
        graveyard.bury("orders", order(f"job-{number}"))
    return [str(row["id"]) for row in graveyard.until_stored(before + count)[before:]]


def made(graveyard: Graveyard, *arguments: str) -> str:
    """The id of a replay that runs."""
    done = graveyard.dlq_here("replay", "--json", "--yes", "--no-wait", *arguments)
    assert done.exit_code == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def shown(graveyard: Graveyard, replay: str) -> dict[str, Any]:
    done = graveyard.dlq_here("replays", replay, "--json", "--limit", "1000")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def until(graveyard: Graveyard, replay: str, **wanted: Any) -> dict[str, Any]:
    def reached() -> dict[str, Any]:
        found = shown(graveyard, replay)
        return found if all(found[name] == value for name, value in wanted.items()) else {}

    return eventually(reached, 60, f"replay {replay} has {wanted}")


def finish(graveyard: Graveyard, number: int, state: str = "SUCCEEDED") -> None:
    """What a worker does at the end of a job that it got."""
    graveyard.take("orders")
    graveyard.database.execute("update redrive.jobs set state = $2 where id = $1", f"job-{number}", state)


def test_paused_it_sends_nothing_resumed_it_goes_on_and_cancelled_the_rest_is_open(
    graveyard: Graveyard,
) -> None:
    letters = dead(graveyard, 12)
    other = dead(graveyard, 1, "orders")
    replay = made(graveyard, *letters, "--rate", "2")
    eventually(lambda: graveyard.depth("mails") >= 2, 20, "it has begun")
    paused = graveyard.dlq_here("pause", replay, "--by", "ada", "--note", "too fast", "--json")
    assert paused.exit_code == 0, paused.stderr
    eventually(lambda: not shown(graveyard, replay)["states"].get("publishing"), 20, "the batch is through")
    sent = shown(graveyard, replay)["states"]["published"]
    # The executor is at work meanwhile.
    until(graveyard, made(graveyard, *other), states={"published": 1})
    found = shown(graveyard, replay)
    assert (found["state"], found["states"]["published"], found["eta_s"]) == ("paused", sent, None)
    assert found["states"]["staged"] == 12 - sent

    assert graveyard.dlq_here("pause", replay).exit_code == 4
    assert graveyard.dlq_here("resume", replay, typed="n\n").exit_code == 1
    assert graveyard.dlq_here("resume", replay, "--by", "bob", "--yes").exit_code == 0
    eventually(lambda: graveyard.depth("mails") > sent, 20, "it goes on")
    cancelled = graveyard.dlq_here("cancel", replay, "--by", "eve", "--note", "wrong ones", "--yes", "--json")
    assert (cancelled.exit_code, json.loads(cancelled.stdout)["state"]) == (0, "cancelled")
    eventually(lambda: not shown(graveyard, replay)["states"].get("publishing"), 20, "nothing is on its way")
    found = shown(graveyard, replay)
    assert {"staged", "publishing"} & set(found["states"]) == set()
    assert found["states"]["cancelled"] + found["states"]["published"] == 12
    assert graveyard.depth("mails") == found["states"]["published"]
    states = {str(row["id"]): row["state"] for row in graveyard.letters()}
    for one in found["items"]:
        assert states[str(one["letter_id"])] == ("replayed" if one["state"] == "published" else "open")
    assert [(event["action"], event["by"], event["why"]) for event in found["events"]] == [
        ("pause", "ada", "too fast"), ("resume", "bob", None), ("cancel", "eve", "wrong ones"),
    ]  # fmt: skip
    for verb in ("pause", "resume", "cancel"):
        again = graveyard.dlq_here(verb, replay, *(["--yes"] if verb != "pause" else []))
        assert (again.exit_code, "is cancelled" in again.stderr) == (4, True)
    still = [str(one["letter_id"]) for one in found["items"] if one["state"] == "cancelled"]
    until(graveyard, made(graveyard, *still), states={"published": len(still)})
    assert graveyard.depth("mails") == 12


def test_of_two_who_pause_at_once_one_is_told(graveyard: Graveyard) -> None:
    replay = made(graveyard, *dead(graveyard, 3), "--rate", "0.1")
    with ThreadPoolExecutor(2) as pool:
        codes = sorted(pool.map(lambda _: graveyard.dlq("pause", replay).returncode, range(2)))
    assert codes == [0, 4]
    assert graveyard.dlq_here("cancel", replay, "--yes").exit_code == 0
    assert graveyard.dlq_here("cancel", "nonsense", "--yes").exit_code == 1


def test_a_job_that_waits_for_its_message_gets_it_though_the_replay_is_cancelled(
    graveyard: Graveyard,
) -> None:
    """It was on its way when the broker went: nobody knows whether it arrived."""
    letters = dead_jobs(graveyard, 3)
    replay = made(graveyard, *letters, "--rate", "0.5")
    eventually(lambda: graveyard.depth("orders") >= 1, 20, "the first is sent")
    graveyard.dlq_here("pause", replay)
    found = until(graveyard, replay, state="paused")
    begun = next(one for one in found["items"] if one["state"] == "staged")
    job = f"job-{letters.index(str(begun['letter_id']))}"
    graveyard.database.execute("update redrive.jobs set state = 'QUEUED', generation = 2 where id = $1", job)
    graveyard.database.execute(
        "update redrive.replay_items set generation = 2 where replay_id = $1::uuid and letter_id = $2",
        replay, begun["letter_id"],
    )  # fmt: skip
    before = graveyard.depth("orders")
    assert graveyard.dlq_here("cancel", replay, "--yes").exit_code == 0

    eventually(lambda: graveyard.depth("orders") == before + 1, 20, "the one that was begun is sent")
    found = until(graveyard, replay, state="cancelled")
    by_state = Counter(one["state"] for one in found["items"])
    assert by_state == {"published": before + 1, "cancelled": 2 - before}
    assert (
        next(one for one in found["items"] if one["letter_id"] == begun["letter_id"])["state"] == "published"
    )


def test_a_canary_that_goes_well_lets_the_rest_out(graveyard: Graveyard) -> None:
    letters = dead_jobs(graveyard, 5)
    replay = made(graveyard, *letters, "--canary", "2")
    until(graveyard, replay, states={"published": 2, "staged": 3})
    finish(graveyard, 0)
    until(graveyard, replay, outcomes={"succeeded": 1})
    assert shown(graveyard, replay)["states"] == {"published": 2, "staged": 3}
    finish(graveyard, 1)
    found = until(graveyard, replay, states={"published": 5})
    assert [(event["action"], event["by"]) for event in found["events"]] == [("canary", "redrive")]
    assert found["events"][0]["why"] == "canary: 2 of 2 went well"


def test_a_canary_that_dies_pauses_the_replay_until_an_operator_says_so(graveyard: Graveyard) -> None:
    letters = dead_jobs(graveyard, 4)
    replay = made(graveyard, *letters, "--canary", "2")
    until(graveyard, replay, states={"published": 2, "staged": 2})
    finish(graveyard, 0)
    finish(graveyard, 1, "DEAD")
    found = until(graveyard, replay, state="paused")
    assert found["states"] == {"published": 2, "staged": 2}
    assert found["events"][0]["why"] == "canary: 1 of 2 went well"
    assert graveyard.dlq_here("resume", replay, "--yes").exit_code == 0
    until(graveyard, replay, states={"published": 4})


def test_a_breaker_stops_a_replay_that_only_kills_again(graveyard: Graveyard) -> None:
    letters = dead(graveyard, 12)
    stop = threading.Event()

    def kill() -> None:
        parameters = pika.URLParameters(graveyard.vhost.amqp_url)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.basic_consume(
                "mails", lambda ch, method, *_: ch.basic_reject(method.delivery_tag, requeue=False)
            )
            while not stop.is_set():
                connection.process_data_events(0.1)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        replay = made(graveyard, *letters, "--rate", "1.5", "--breaker", "3")
        found = until(graveyard, replay, state="paused")
        assert found["states"]["staged"] >= 1
        assert found["outcomes"]["died_again"] >= 3
        (event,) = found["events"]
        assert (event["action"], event["by"]) == ("breaker", "redrive")
        assert "died again as before" in event["why"]
        # What was counted is not counted again.
        before = found["states"]["published"]
        graveyard.dlq_here("resume", replay, "--yes")
        found = until(graveyard, replay, state="paused") if found["states"]["staged"] > 3 else found
        assert found["states"]["published"] >= min(before + 3, 12)
    finally:
        stop.set()
        killer.join()
    graveyard.dlq_here("cancel", replay, "--yes")


def test_letters_go_to_another_queue_that_takes_them(graveyard: Graveyard) -> None:
    (stranger,) = dead(graveyard, 1)
    (job,) = dead_jobs(graveyard, 1)
    for to, why in (
        ("no-such-queue", "there is no queue no-such-queue"),
        ("mails.dlq", "mails.dlq is a dead-letter queue"),
        ("redrive.unrouted.dlq", "is a dead-letter queue"),
        (step("orders", Ladder(), 0), "belongs to a retry ladder"),
    ):
        refused = graveyard.dlq_here("replay", stranger, "--to", to, "--no-wait")
        assert (refused.exit_code, why in refused.stderr) == (1, True), refused.stderr
    with graveyard.vhost.channel() as channel:
        channel.queue_declare("theirs", durable=True, arguments={"x-queue-type": "quorum"})
    refused = graveyard.dlq_here("replay", job, "--to", "theirs", "--no-wait")
    assert "the topology has no work queue theirs for its job" in refused.stderr

    made(graveyard, stranger, "--to", "theirs")
    made(graveyard, job, "--to", "mails")
    assert graveyard.take("theirs")[2] == b"x"
    assert graveyard.take("mails")[0].get_header("redrive-attempt") == "2.1"
    row = graveyard.job_row("job-0")
    assert (row["state"], row["queue"], row["generation"]) == ("QUEUED", "mails", 2)


def test_what_is_sent_only_by_force(graveyard: Graveyard) -> None:
    """An outcome that nobody knows, and a message that was replayed too often."""
    letter, doubtful = dead(graveyard, 2)
    graveyard.settings["REDRIVE_REPLAY_LAPS"] = "2"
    try:
        for _ in range(2):
            made(graveyard, letter)
            graveyard.reject("mails")
            letter = str(graveyard.until_stored(len(graveyard.letters()) + 1)[-1]["id"])
        refused = graveyard.dlq_here("replay", letter, "--no-wait")
        assert "it was replayed 2 times already: force sends it" in refused.stderr
        made(graveyard, letter, "--force")
    finally:
        del graveyard.settings["REDRIVE_REPLAY_LAPS"]
    graveyard.take("mails")

    first = made(graveyard, doubtful)
    graveyard.take("mails")
    # As the loss of the confirm leaves it.
    graveyard.database.execute(
        "update redrive.replay_items set state = 'unknown', outcome = 'unknown', decided_at = now()"
        " where replay_id = $1::uuid",
        first,
    )
    refused = graveyard.dlq_here("replay", doubtful, "--no-wait")
    assert f"replay {first} of it may have arrived: force sends it again" in refused.stderr
    told = json.loads(graveyard.dlq_here("replay", "--state", "replayed", "--dry-run", "--json").stdout)
    assert told["left_out"]["a replay of it may have arrived: force sends it again"] == 1
    second = made(graveyard, doubtful, "--force", "--rate", "0.1", "--canary", "1")
    graveyard.take("mails")
    until(graveyard, second, states={"published": 1})
    graveyard.dlq_here("cancel", second, "--yes")
    # Sent or not: its doubt remains.
    assert graveyard.shown(int(doubtful))["state"] == "replayed"


def test_too_large_for_the_broker_is_told_before(graveyard: Graveyard) -> None:
    graveyard.publish("mails.dlq", plain(bytes(1024 * 1024 + 1), message_id="large"))
    (letter,) = graveyard.until_stored(1)
    graveyard.settings["REDRIVE_REPLAY_MAX_MIB"] = "1"
    try:
        told = graveyard.dlq_here("replay", str(letter["id"]), "--dry-run", "--json")
        assert json.loads(told.stdout)["left_out"] == {
            "too large to be sent: its body is over 1048576 bytes": 1
        }
        assert graveyard.dlq_here("replay", str(letter["id"]), "--no-wait").exit_code == 1
    finally:
        del graveyard.settings["REDRIVE_REPLAY_MAX_MIB"]
    made(graveyard, str(letter["id"]))
    assert len(graveyard.take("mails")[2]) == 1024 * 1024 + 1


def test_nothing_is_sent_to_a_queue_that_is_drained(
    graveyard: Graveyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    (letter,) = dead(graveyard, 1)
    watched = f"theirs,//{graveyard.vhost.vhost}/ours,//abroad/mails"
    monkeypatch.setitem(graveyard.settings, "REDRIVE_WATCH", watched)
    for queue in ("theirs", "ours"):
        told = graveyard.dlq_here("replay", letter, "--to", queue, "--dry-run", "--json")
        assert json.loads(told.stdout)["left_out"] == {f"{queue} is drained (REDRIVE_WATCH)": 1}
    namesake = graveyard.dlq_here("replay", letter, "--to", "mails", "--dry-run", "--json")
    assert json.loads(namesake.stdout)["to_send"] == 1
    # As the letter of a program whose dead-letter queue dead-letters once more.
    monkeypatch.setitem(graveyard.settings, "REDRIVE_WATCH", "mails")
    refused = graveyard.dlq_here("replay", letter, "--no-wait")
    assert (refused.exit_code, "mails is drained" in refused.stderr) == (1, True)


def test_several_are_asked_about_and_some_may_be_left_out(graveyard: Graveyard) -> None:
    first, second, third = dead(graveyard, 3)
    graveyard.dlq_here("discard", second, "--note", "no")
    assert graveyard.dlq_here("replay", first, third, "--no-wait", typed="n\n").exit_code == 1
    assert graveyard.dlq_here("replay", first, second, third, "--yes", "--no-wait").exit_code == 1
    assert graveyard.dlq_here("replay", first, "999999", "--yes", "--no-wait").exit_code == 1
    told = graveyard.dlq_here("replay", first, second, third, "999999", "--dry-run", "--json")
    survey = json.loads(told.stdout)
    assert survey["left_out"] == {"state is discarded": 1, "not on record": 1}
    named = {"state is discarded": [int(second)], "not on record": [999999]}
    assert survey["left_out_letters"] == named
    told = graveyard.dlq_here("replay", first, second, third, "999999", "--dry-run")
    assert f"refused: 1 ({second}), state is discarded\n" in told.stdout
    assert graveyard.database.value("select count(*) from redrive.replays") == 0

    replay = made(graveyard, third, second, first, "999999", "--skip-ineligible", "--limit", "2")
    assert [str(one["letter_id"]) for one in shown(graveyard, replay)["items"]] == [third, first]
    outstanding = graveyard.dlq_here("replay", third, "--no-wait", "--skip-ineligible")
    assert (outstanding.exit_code, "no letter that can be replayed" in outstanding.stderr) == (1, True)


def test_replays_are_listed_page_by_page_and_remember_how_they_were_chosen(graveyard: Graveyard) -> None:
    letters = dead(graveyard, 4)
    by_filter = made(graveyard, "--queue", "mails", "--limit", "1", "--since", "1h", "--note", "chosen")
    named = [made(graveyard, letter) for letter in letters[1:]]
    seen: list[str] = []
    arguments: tuple[str, ...] = ()
    while True:
        page = graveyard.dlq_here("replays", "--json", "--limit", "2", *arguments)
        found = [json.loads(line)["id"] for line in page.stdout.splitlines()]
        seen += found
        if len(found) < 2:
            break
        arguments = ("--after", found[-1])
    assert seen == [*reversed(named), by_filter]
    chosen_by = shown(graveyard, by_filter)["chosen_by"]
    assert (chosen_by["queue"], set(chosen_by)) == ("mails", {"queue", "since"})
    assert shown(graveyard, named[0])["chosen_by"] is None
    part = json.loads(graveyard.dlq_here("replays", by_filter, "--json", "--after", "1").stdout)
    assert (part["items"], part["next"]) == ([], None)
    assert graveyard.dlq_here("replays", "--after", by_filter[:-1] + "0" * 9).exit_code == 1
    text = graveyard.dlq_here("replays", by_filter, "--follow")
    assert (text.exit_code, "1 published" in text.stdout) == (0, True)


def test_outcomes_of_what_is_no_job(graveyard: Graveyard) -> None:
    """Consumed, died again, and a job after all, whose row its worker made."""
    letters = dead(graveyard, 2)
    graveyard.bury("orders", order("late"))
    late = str(graveyard.until_stored(3)[-1]["id"])
    replay = made(graveyard, *letters, late)
    for _ in letters:
        graveyard.take("mails")
    graveyard.take("orders")
    graveyard.job("late", "SUCCEEDED", generation=2)
    until(graveyard, replay, outcomes={"succeeded": 1})
    found = until(graveyard, replay, state="done", outcomes={"succeeded": 1, "consumed": 2})
    assert found["states"] == {"published": 3}

    # One that comes back later than the queue was empty for: what is known counts, not what was concluded.
    token = graveyard.database.value(
        "select token from redrive.replay_items where letter_id = $1", int(letters[0])
    )
    graveyard.publish("mails.dlq", plain(b"x", message_id="again", headers={"redrive-replay": token}))
    graveyard.until_stored(4)
    assert shown(graveyard, replay)["outcomes"] == {"succeeded": 1, "consumed": 1, "died_again": 1}
    (item,) = graveyard.shown(int(letters[0]))["replays"]
    assert (item["outcome"], item["detail"]) == ("died_again", None)


def test_on_a_terminal_a_bar_tells_how_far_it_is(graveyard: Graveyard) -> None:
    letters = dead(graveyard, 3)
    here, there = pty.openpty()
    with subprocess.Popen(
        console_script(DLQ, "replay", *letters, "--yes", "--rate", "4"),
        env=clean_environment(graveyard.settings | {"TERM": "xterm", "COLUMNS": "100"}),
        cwd=graveyard.processes.directory,
        stdout=subprocess.PIPE,
        stderr=there,
        text=True,
    ) as process:
        out, _ = process.communicate(timeout=60)
    os.close(there)
    shown = ""
    with contextlib.suppress(OSError):  # what a terminal says when nobody writes to it any more
        while piece := os.read(here, 65_536):
            shown += piece.decode()
    os.close(here)
    assert (process.returncode, "3 published" in out) == (0, True)
    assert "3/3" in shown
    assert "━" in shown
    assert "/s" in shown


def test_an_error_of_ours_pauses_the_replay_where_an_operator_sees_it(graveyard: Graveyard) -> None:
    """The database refuses one statement, and will again: no outage."""
    letters = dead(graveyard, 2)
    execute = graveyard.database.execute
    execute(
        "create function redrive.refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'refused on purpose'; end $$"
    )
    execute(
        "create trigger refuse before update on redrive.replay_items for each row"
        " when (new.state = 'publishing') execute function redrive.refuse()"
    )
    try:
        replay = made(graveyard, *letters)
        found = until(graveyard, replay, state="paused")
    finally:
        execute("drop function redrive.refuse() cascade")
    (event,) = found["events"]
    assert (event["by"], "refused on purpose" in event["why"]) == ("redrive", True)
    assert graveyard.dlq_here("resume", replay, "--yes").exit_code == 0
    until(graveyard, replay, states={"published": 2})


def test_one_statement_that_fails_gives_up_nothing_that_is_on_its_way(graveyard: Graveyard) -> None:
    """As the victim of a deadlock, at every look for outcomes, while letters are sent."""
    (job,) = dead_jobs(graveyard, 1)
    letters = dead(graveyard, 8)
    execute = graveyard.database.execute
    execute(
        "create function redrive.refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'in the way' using errcode = '40P01'; end $$"
    )
    execute(
        "create trigger refuse before update on redrive.replays for each row"
        " when (new.state = 'done') execute function redrive.refuse()"
    )
    process = graveyard.processes.started[-1]
    try:
        first = made(graveyard, job)
        until(graveyard, first, states={"published": 1})
        replay = made(graveyard, *letters, "--rate", "4")
        finish(graveyard, 0)
        found = until(graveyard, replay, states={"published": 8})
        assert found["outcomes"] == {}
        eventually(lambda: "replays: another transaction was in the way" in process.log, 20, "it is told")
    finally:
        execute("drop function redrive.refuse() cascade")
    until(graveyard, first, state="done")
    assert graveyard.depth("mails") == 8
