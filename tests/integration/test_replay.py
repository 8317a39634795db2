"""Letters sent out again: exactly, once, and with what became of them on record."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.databases import Database
from tests.support.graveyard import Graveyard, order, plain
from tests.support.processes import Processes
from tests.support.proxy import TcpProxy
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.headers import Attempt
from topology.messages import Message
from topology.wire import HeaderEntry, split

# RabbitMQ's frame_max, less the frame's own bytes and what stands before the properties.
FRAME_BYTES = 131_072 - 8 - 12


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


def a_dead_job(graveyard: Graveyard, job_id: str = "job-1") -> int:
    """A letter of a DEAD job; its id."""
    before = len(graveyard.letters())
    graveyard.failed_job(job_id, "Traceback: no")
    graveyard.bury("orders", order(job_id))
    return int(graveyard.until_stored(before + 1)[-1]["id"])


def replay(graveyard: Graveyard, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = graveyard.dlq("replay", "--json", "--yes", *arguments)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def item(graveyard: Graveyard, letter_id: int) -> dict[str, Any]:
    return graveyard.database.fetch(
        "select * from redrive.replay_items where letter_id = $1 order by position", letter_id
    )[-1]


def finish(graveyard: Graveyard, job_id: str, state: str) -> None:
    """What the worker does at the end."""
    graveyard.database.execute("update redrive.jobs set state = $2 where id = $1", job_id, state)


def test_a_replayed_job_is_a_new_generation_and_otherwise_the_message_it_was(graveyard: Graveyard) -> None:
    graveyard.start()
    graveyard.failed_job("job-1", "Traceback: no")
    message = order("job-1")
    sent = split(message.properties).with_header("retries", 3).with_header("CC", ["elsewhere"])
    sent = sent.with_header("expires", "2999-01-01T00:00:00+00:00")
    sent = sent.with_header("odd", 0.1).with_header("redrive-due", 5)
    graveyard.database.execute(
        "update redrive.jobs set crashes = 2, retries = 3, retry_arguments = '[[7], {}, {}]'"
    )
    graveyard.bury("orders", Message(sent.encode(), message.body))
    (letter,) = graveyard.until_stored(1)
    stored = split(bytes(letter["properties"]))

    code, plan = replay(graveyard, str(letter["id"]), "--no-wait", "--by", "ada", "--note", "fixed")
    got, _, body = graveyard.take("orders")

    assert (code, plan["requested_by"], plan["note"]) == (0, "ada", "fixed")
    assert body == message.body
    token = got.get_header("redrive-replay")
    assert token == item(graveyard, letter["id"])["token"]
    assert got.get_header("redrive-attempt") == "2.1"
    assert got.get_header("retries") == 0
    gone = {b"x-death", b"CC", b"expires", b"redrive-due"}
    changed = {b"redrive-attempt", b"retries", b"redrive-replay"}
    assert {entry.key for entry in got.headers or ()} & gone == set()
    assert {key for key in keys(stored.headers) if key.startswith((b"x-first", b"x-last"))}
    # An older broker counts deliveries from the first one on.
    assert {key for key in keys(got.headers) if key.startswith(b"x-")} <= {b"x-delivery-count"}
    kept = {e.key: e.value for e in got.headers or () if e.key not in changed and not e.key.startswith(b"x-")}
    assert kept == {
        e.key: e.value
        for e in stored.headers or ()
        if e.key not in gone | changed and not e.key.startswith(b"x-")
    }
    for name in ("content_type", "content_encoding", "correlation_id", "message_id", "type", "delivery_mode"):
        assert getattr(got, name) == getattr(stored, name)
    row = graveyard.job_row("job-1")
    assert (row["state"], row["generation"], row["attempt"], row["letter_id"]) == ("QUEUED", 2, 1, None)
    assert (row["crashes"], row["retries"], row["retry_arguments"]) == (0, 0, None), "bounds begin anew"


def keys(headers: tuple[HeaderEntry, ...] | None) -> set[bytes]:
    return {entry.key for entry in headers or ()}


def test_the_command_waits_for_the_jobs_outcome(graveyard: Graveyard) -> None:
    graveyard.start()
    letter = a_dead_job(graveyard)

    def work() -> None:
        graveyard.take("orders")
        finish(graveyard, "job-1", "SUCCEEDED")

    worker = threading.Thread(target=work)
    worker.start()
    code, plan = replay(graveyard, str(letter))
    worker.join()

    assert code == 0
    assert [(i["state"], i["outcome"]) for i in plan["items"]] == [("published", "succeeded")]
    (shown,) = graveyard.listed()
    assert (shown["state"], shown["replays"][0]["outcome"]) == ("replayed", "succeeded")
    eventually(
        lambda: graveyard.database.value("select state from redrive.replays") == "done",
        10,
        "the plan is done",
    )


def test_a_replay_that_dies_again_names_the_new_letter(graveyard: Graveyard) -> None:
    graveyard.start()
    letter = a_dead_job(graveyard)
    replay(graveyard, str(letter), "--no-wait")
    eventually(lambda: graveyard.depth("orders") == 1, 10, "it is sent")
    finish(graveyard, "job-1", "DEAD")
    graveyard.database.execute("update redrive.jobs set reason = 'exhausted' where id = 'job-1'")
    graveyard.reject("orders")
    old, new = graveyard.until_stored(2)

    found = eventually(lambda: item(graveyard, letter)["next_letter_id"] and item(graveyard, letter), 10)
    assert (found["outcome"], found["next_letter_id"]) == ("died_again", new["id"])
    assert (old["state"], new["state"], new["reason"]) == ("replayed", "open", "exhausted")
    assert graveyard.shown(new["id"])["replay_of"] == letter
    printed = graveyard.dlq_here("show", str(letter)).stdout
    assert f"  published to orders: died_again, as letter {new['id']}\n" in printed
    assert graveyard.job_row("job-1")["letter_id"] == new["id"]


def test_two_operators_at_once_one_wins_and_the_other_is_told(graveyard: Graveyard) -> None:
    graveyard.start()
    letter = str(a_dead_job(graveyard))
    with ThreadPoolExecutor(2) as pool:
        codes = sorted(pool.map(lambda _: replay(graveyard, letter, "--no-wait")[0], range(2)))
    third = graveyard.dlq("replay", letter, "--no-wait")

    assert codes == [0, 4]
    assert third.returncode == 4
    assert "outstanding" in third.stderr
    eventually(lambda: graveyard.depth("orders") == 1, 10, "it is sent")
    assert graveyard.database.value("select count(*) from redrive.replay_items") == 1


def test_a_queue_that_is_gone_refuses_the_plan_and_one_that_goes_fails_the_letter(
    graveyard: Graveyard,
) -> None:
    process = graveyard.start()
    letter = a_dead_job(graveyard)
    process.terminate()
    code, plan = replay(graveyard, str(letter), "--no-wait")
    assert code == 0, plan
    with graveyard.vhost.channel() as channel:
        channel.queue_delete("orders")
    graveyard.start()

    failed = eventually(lambda: item(graveyard, letter)["state"] == "failed" and item(graveyard, letter), 20)
    assert "orders" in failed["detail"]
    assert graveyard.listed()[0]["state"] == "open"
    row = graveyard.job_row("job-1")
    assert (row["state"], row["reason"], row["letter_id"]) == ("DEAD", "exception", letter)

    code, refused = replay(graveyard, str(letter))
    assert (code, f"letter {letter}: there is no queue orders" in refused["error"]) == (1, True)


def test_what_cannot_be_replayed_refuses_the_whole_plan(graveyard: Graveyard) -> None:
    graveyard.start()
    fit = a_dead_job(graveyard, "job-1")
    succeeded = a_dead_job(graveyard, "job-2")
    finish(graveyard, "job-2", "SUCCEEDED")
    graveyard.publish("redrive.unrouted.dlq", plain(b"of unknown origin"))
    (*_, homeless) = graveyard.until_stored(3)

    first = graveyard.listed("--queue", "orders")[-1]["id"]
    graveyard.bury("orders", order("job-1"))
    twin = graveyard.until_stored(4)[-1]["id"]

    for ids, words in [
        ([first, twin], f"letter {twin}: it is a duplicate of letter {first}: replay that one"),
        ([fit, 999_999], "is not on record"),
        ([fit, succeeded], "is SUCCEEDED"),
        ([fit, homeless["id"]], "does not tell which queue of this vhost"),
    ]:
        done = graveyard.dlq("replay", "--yes", *map(str, ids))
        assert done.returncode == 1
        assert words in done.stderr

    # A copy that was stored while its job still ran is not known as one.
    graveyard.database.execute("update redrive.dead_letters set duplicate_of = null where id = $1", twin)
    done = graveyard.dlq("replay", "--yes", str(first), str(twin))
    assert f"letter {first}: letter {twin} is of the same job, and newer" in done.stderr
    assert graveyard.database.value("select count(*) from redrive.replays") == 0
    assert {letter["state"] for letter in graveyard.listed()} == {"open"}


def test_a_letter_that_is_no_job_is_sent_exactly_and_its_return_is_known(graveyard: Graveyard) -> None:
    graveyard.start()
    graveyard.bury(
        "orders", plain(b"\xff\x00", message_id="theirs", headers={"k": "v"}, user_id=graveyard.address.user)
    )
    (letter,) = graveyard.until_stored(1)
    code, plan = replay(graveyard, str(letter["id"]))
    assert (code, plan["items"][0]["state"], plan["items"][0]["outcome"]) == (0, "published", None)
    graveyard.reject("orders")
    _, again = graveyard.until_stored(2)

    assert bytes(again["body"]) == b"\xff\x00"
    assert split(bytes(again["properties"])).user_id is None
    assert split(bytes(again["properties"])).get_header("redrive-attempt") is None
    assert again["replay_token"] == item(graveyard, letter["id"])["token"]
    eventually(lambda: item(graveyard, letter["id"])["outcome"] == "died_again", 20, "its return is known")


@pytest.mark.parametrize("kill_at", ["before", "after"])
def test_killed_around_the_publish_a_job_is_sent_again(
    graveyard: Graveyard, proxy: Any, kill_at: str
) -> None:
    """Before: staged, nothing published. After: the confirm never came back."""
    amqp: TcpProxy = proxy(graveyard.vhost.amqp_url)
    process = graveyard.start(REDRIVE_AMQP_URL=amqp.url)
    letter = a_dead_job(graveyard)
    graveyard.bury("orders", plain(b"foreign", message_id="f"))
    foreign = graveyard.until_stored(2)[-1]["id"]
    amqp.hold()
    replay(graveyard, str(letter), str(foreign), "--no-wait")
    eventually(lambda: item(graveyard, letter)["state"] == "publishing", 10, "staged, and on its way")
    if kill_at == "after":
        amqp.resume()
        eventually(lambda: graveyard.depth("orders") == 2, 10, "the broker has them")
        # The state as a kill between publish and record leaves it.
        process.kill()
        graveyard.database.execute(
            "update redrive.replay_items set state = 'publishing', published_at = null, outcome = null"
        )
        graveyard.database.execute("update redrive.dead_letters set state = 'replaying'")
    else:
        process.kill()
        amqp.refuse()
    sent = graveyard.depth("orders")

    graveyard.start()
    eventually(lambda: item(graveyard, letter)["state"] == "published", 20, "it is sent by the next one")
    unknown = eventually(
        lambda: item(graveyard, foreign)["state"] == "unknown" and item(graveyard, foreign), 10
    )

    # The job's message went out again, with the same generation: its claim tells. The stranger's did not.
    assert graveyard.depth("orders") == sent + 1
    row = graveyard.job_row("job-1")
    assert (row["state"], row["generation"]) == ("QUEUED", 2)
    assert unknown["outcome"] == "unknown"
    states = {letter["id"]: letter["state"] for letter in graveyard.listed()}
    assert states == {letter: "replayed", foreign: "replayed"}


def test_a_replay_waits_for_the_broker(graveyard: Graveyard, proxy: Any) -> None:
    amqp: TcpProxy = proxy(graveyard.vhost.amqp_url)
    process = graveyard.start(REDRIVE_AMQP_URL=amqp.url)
    letter = a_dead_job(graveyard)
    amqp.refuse()
    replay(graveyard, str(letter), "--no-wait")
    process.wait_for_log("replay waits", 30)
    amqp.resume()
    assert graveyard.take("orders")[0].get_header("redrive-attempt") == "2.1"
    assert graveyard.job_row("job-1")["generation"] == 2


def test_a_stranger_whose_confirm_was_lost_is_not_sent_again(graveyard: Graveyard, proxy: Any) -> None:
    amqp: TcpProxy = proxy(graveyard.vhost.amqp_url)
    graveyard.start(REDRIVE_AMQP_URL=amqp.url)
    graveyard.bury("orders", plain(b"a stranger's body", message_id="f"))
    (foreign,) = graveyard.until_stored(1)
    amqp.hold_from(b"a stranger's body")
    replay(graveyard, str(foreign["id"]), "--no-wait")
    eventually(lambda: amqp.holds(b"a stranger's body"), 10, "it is on its way")
    amqp.refuse()
    eventually(lambda: item(graveyard, foreign["id"])["state"] == "unknown", 20, "the doubt is on record")
    amqp.resume()
    # The executor is at work again: what it would send goes out before this.
    job = a_dead_job(graveyard)
    replay(graveyard, str(job), "--no-wait")
    eventually(lambda: item(graveyard, job)["state"] == "published", 20, "a job is sent")

    assert graveyard.depth("orders") == 1
    assert graveyard.take("orders")[0].get_header("redrive-attempt") == "2.1"
    assert item(graveyard, foreign["id"])["outcome"] == "unknown"
    assert graveyard.shown(foreign["id"])["state"] == "replayed"


@pytest.mark.rabbitmq4
def test_a_letter_above_the_brokers_limit_fails_with_its_words_and_stops_nobody(graveyard: Graveyard) -> None:
    """From a broker whose limit was higher then, and whose letter was stored as smaller than it is."""
    process = graveyard.start()
    graveyard.publish("orders.dlq", plain(b"to be large", message_id="large"))
    large = graveyard.until_stored(1)[0]["id"]
    small = a_dead_job(graveyard)
    process.terminate()
    replay(graveyard, str(large), str(small), "--no-wait")
    graveyard.database.execute(
        "update redrive.dead_letters set body = $1 where id = $2", bytes(17 * 1024 * 1024), large
    )
    graveyard.start()
    failed = eventually(lambda: item(graveyard, large)["state"] == "failed" and item(graveyard, large), 30)
    assert "larger than" in failed["detail"]
    assert graveyard.take("orders")[0].get_header("redrive-attempt") == "2.1"
    assert {letter["id"]: letter["state"] for letter in graveyard.listed()} == {
        large: "open",
        small: "replayed",
    }


def test_a_letter_that_no_longer_fits_a_frame_fails_and_takes_no_neighbour_with_it(
    graveyard: Graveyard,
) -> None:
    process = graveyard.start()
    room = FRAME_BYTES - len(plain(message_id="large", headers={"h": ""}).properties)
    graveyard.publish("orders.dlq", plain(message_id="large", headers={"h": "v" * (room - 10)}))
    (row,) = graveyard.until_stored(1)
    large = row["id"]
    small = a_dead_job(graveyard)
    # Its headers fill one frame; with the replay's own header they no longer fit.
    told = json.loads(graveyard.dlq("replay", str(large), str(small), "--dry-run", "--json").stdout)
    assert (told["letters"], [why for why in told["left_out"] if "one frame" in why] != []) == (1, True)
    process.terminate()
    change = "update redrive.dead_letters set properties = $1 where id = $2"
    graveyard.database.execute(change, plain(message_id="large").properties, large)
    replay(graveyard, str(large), str(small), "--no-wait")
    graveyard.database.execute(change, row["properties"], large)
    graveyard.start()
    failed = eventually(lambda: item(graveyard, large)["state"] == "failed" and item(graveyard, large), 10)
    assert "one frame" in failed["detail"]
    assert graveyard.take("orders")[0].get_header("redrive-attempt") == "2.1"


def test_an_expiry_in_the_body_is_a_reason_and_not_sent_in_vain(graveyard: Graveyard) -> None:
    """Celery's protocol 1 has it there; the body of a replay is not touched."""
    process = graveyard.start()
    for job_id, expires in (("past", "2020-01-01T00:00:00+00:00"), ("later", "2999-01-01T00:00:00+00:00")):
        body = {
            "task": "orders.place",
            "id": job_id,
            "args": [],
            "kwargs": {},
            "retries": 9,
            "expires": expires,
        }
        graveyard.failed_job(job_id, "Traceback: no")
        graveyard.bury("orders", plain(json.dumps(body).encode(), content_type="application/json"))
    past, later = graveyard.until_stored(2)
    body, past, later = past["body"], past["id"], later["id"]
    told = json.loads(graveyard.dlq("replay", str(past), str(later), "--dry-run", "--json").stdout)
    assert (told["letters"], list(told["left_out"].values())) == (1, [1])
    assert "expired at 2020-01-01" in "".join(told["left_out"])
    code, refusal = replay(graveyard, str(past), str(later))
    assert (code, f"letter {past}: its body" in refusal["error"]) == (1, True)

    # It expires after the plan was made.
    process.terminate()
    change = "update redrive.dead_letters set body = $1 where id = $2"
    graveyard.database.execute(change, body.replace(b"2020", b"2998"), past)
    replay(graveyard, str(past), str(later), "--no-wait")
    graveyard.database.execute(change, body, past)
    graveyard.start()
    eventually(lambda: item(graveyard, later)["state"] == "published", 10, "the other is sent")
    refused = item(graveyard, past)

    assert refused["state"] == "failed"
    assert "expired at 2020-01-01" in refused["detail"]
    assert (graveyard.job_row("past")["state"], graveyard.job_row("later")["state"]) == ("DEAD", "QUEUED")
    assert {letter["id"]: letter["state"] for letter in graveyard.listed()} == {
        past: "open",
        later: "replayed",
    }


def test_the_rate_is_kept(graveyard: Graveyard) -> None:
    graveyard.start()
    graveyard.publish("orders.dlq", *(plain(str(n).encode(), message_id=str(n)) for n in range(12)))
    letters = graveyard.until_stored(12)
    replay(graveyard, *(str(row["id"]) for row in letters), "--rate", "8")

    sql = "select extract(epoch from max(published_at) - min(published_at))::float8 from redrive.replay_items"
    assert graveyard.database.value(sql) >= 1.1


def test_a_cancelled_attempt_header_of_another_generation_is_kept_apart(graveyard: Graveyard) -> None:
    """A message of ours without a job row: its next generation follows from its own header."""
    graveyard.start()
    graveyard.bury("orders", order("restored", Attempt(3, 2)))
    (letter,) = graveyard.until_stored(1)
    replay(graveyard, str(letter["id"]), "--no-wait")
    assert graveyard.take("orders")[0].get_header("redrive-attempt") == "4.1"


def test_replays_are_listed_and_shown(graveyard: Graveyard) -> None:
    graveyard.start()
    letter = a_dead_job(graveyard)
    _, plan = replay(graveyard, str(letter), "--no-wait")
    listed = graveyard.dlq("replays", "--json")
    shown = graveyard.dlq("replays", plan["id"], "--json")
    missing = graveyard.dlq("replays", "nonsense")

    assert [json.loads(line)["id"] for line in listed.stdout.splitlines()] == [plan["id"]]
    assert json.loads(shown.stdout)["items"][0]["letter_id"] == letter
    assert graveyard.dlq("replays").returncode == 0
    assert missing.returncode == 1


def test_a_job_that_left_dead_after_the_plan_was_made_is_not_sent(graveyard: Graveyard) -> None:
    process = graveyard.start()
    letter = a_dead_job(graveyard)
    process.terminate()
    replay(graveyard, str(letter), "--no-wait")
    finish(graveyard, "job-1", "SUCCEEDED")
    graveyard.start()
    failed = eventually(lambda: item(graveyard, letter)["state"] == "failed" and item(graveyard, letter), 10)

    assert "SUCCEEDED" in failed["detail"]
    assert graveyard.depth("orders") == 0
    assert graveyard.listed()[0]["state"] == "open"
    row = graveyard.job_row("job-1")
    assert (row["state"], row["generation"]) == ("SUCCEEDED", 1)
