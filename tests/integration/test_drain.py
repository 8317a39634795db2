"""Letters of every kind reach Postgres exactly, with their reason."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tests.support.databases import Database
from tests.support.graveyard import Graveyard, order, plain
from tests.support.processes import Processes
from tests.support.vhosts import Vhost
from tests.support.waiting import eventually
from topology.headers import Attempt
from topology.messages import Message
from topology.wire import HeaderEntry, Properties, properties, split

TRACEBACK = """Traceback (most recent call last):
  File "/srv/venv/lib/python3.11/site-packages/celery/app/trace.py", line 453, in trace_task
    R = retval = fun(*args, **kwargs)
  File "/srv/app/shop/orders.py", line 12, in place
    check(order)
  File "/srv/venv/lib/python3.11/site-packages/json/__init__.py", line 9, in loads
    raise ValueError("no")
ValueError: no
"""


@pytest.fixture
def graveyard(vhost: Vhost, database: Database, processes: Processes) -> Graveyard:
    return Graveyard(vhost, database, processes)


def odd_headers() -> Properties:
    """One header of every type, and values that client libraries stumble over."""
    entries = {
        b"bool": b"t\x01", b"i8": b"b\xff", b"i16": b"s\x80\x00", b"i32": struct.pack(">ci", b"I", -5),
        b"i64": struct.pack(">cq", b"l", 2**40), b"u8": b"B\xff", b"u16": b"u\xff\xff",
        b"u32": b"i\xff\xff\xff\xff",
        b"float": struct.pack(">cf", b"f", 0.1), b"double": struct.pack(">cd", b"d", 0.1),
        b"decimal": b"D\x02\x00\x00\x30\x39", b"when": struct.pack(">cQ", b"T", 1_700_000_000),
        b"milliseconds": struct.pack(">cQ", b"T", 1_700_000_000_000), b"far": struct.pack(">cQ", b"T", 2**62),
        b"void": b"V", b"bytes": b"x\x00\x00\x00\x02\x00\xff", b"latin": b"S\x00\x00\x00\x02\xff\xfe",
        b"nul": b"S\x00\x00\x00\x03x\x00y", b"nul\x00key": b"V", b"\xff\xfe": b"t\x00",
        b"list": b"A\x00\x00\x00\x03t\x01V", b"table": b"F\x00\x00\x00\x04\x01at\x01" + b"",
    }  # fmt: skip
    made = Properties(headers=tuple(HeaderEntry(key, value) for key, value in sorted(entries.items())))
    return split(made.encode())


BODIES = [
    b"",
    b"\x00",
    b"\xff\xfe\x00garbage",
    b'[["a\\u0000b"],{},{}]',
    b'"\\ud800"',
    b'{"a":NaN,"a":1e400}',
]


def test_odd_letters_are_stored_byte_for_byte_and_shown_as_json(graveyard: Graveyard) -> None:
    sent = [Message(odd_headers().encode(), body) for body in BODIES]
    for message in sent:
        graveyard.publish("orders", message)
    graveyard.reject("orders", len(sent))
    # The same kept in the queue of another work queue: what the broker delivers, without a consumer of ours.
    graveyard.bury("mails", sent[0])
    delivered = graveyard.take("mails.dlq")[0]

    process = graveyard.start()
    stored = graveyard.until_stored(len(sent))

    assert [bytes(row["body"]) for row in stored] == BODIES
    assert [bytes(row["body_sha256"]) for row in stored] == [hashlib.sha256(body).digest() for body in BODIES]
    ours = {entry.key: entry.value for entry in odd_headers().headers or ()}
    for row in stored:
        kept = {entry.key: entry.value for entry in split(bytes(row["properties"])).headers or ()}
        broker_says = {entry.key: entry.value for entry in delivered.headers or ()}
        assert {key: kept[key] for key in ours} == {key: broker_says[key] for key in ours}
    assert {row["reason"] for row in stored} == {"undecodable"}
    for letter in graveyard.listed():
        shown = graveyard.shown(letter["id"])
        assert shown["headers"] or shown["deaths"]
        assert shown["deaths"][0]["queue"] == "orders"
        assert graveyard.dlq_here("show", str(letter["id"])).exit_code == 0
    assert process.exit_code is None


def rejected_of_dead_job(graveyard: Graveyard) -> None:
    graveyard.failed_job("job-1", TRACEBACK)
    graveyard.bury("orders", order("job-1"))


def returned_too_often(graveyard: Graveyard) -> None:
    graveyard.job("job-2", "QUEUED")
    graveyard.publish("orders", order("job-2"))

    def gone() -> bool:
        with graveyard.vhost.channel() as channel:
            method, _, _ = channel.basic_get("orders")
            if method is not None:
                channel.basic_reject(method.delivery_tag, requeue=True)
            return method is None and graveyard.depth("orders") == 0

    eventually(gone, 20, "the delivery limit is reached")


def expired_in_the_queue(graveyard: Graveyard) -> None:
    graveyard.job("job-3", "QUEUED")
    message = order("job-3")
    short_lived = split(message.properties)._replace(expiration=b"1")
    graveyard.publish("orders", Message(short_lived.encode(), message.body))


def no_celery_message(graveyard: Graveyard) -> None:
    graveyard.bury("orders", plain(b"\x00\x01", content_type="text/plain"))


def wrong_shape(graveyard: Graveyard) -> None:
    graveyard.bury(
        "orders", plain(b"[1]", content_type="application/json", headers={"task": "orders.place", "id": "x"})
    )


def unknown_task(graveyard: Graveyard) -> None:
    headers = {"task": "orders.gone", "id": "job-6"}
    graveyard.job("job-6", "QUEUED", type="orders.gone")
    graveyard.bury("orders", plain(b"[[],{},{}]", content_type="application/json", headers=headers))


def rejected_for_no_known_reason(graveyard: Graveyard) -> None:
    graveyard.job("job-7", "QUEUED")
    graveyard.bury("orders", order("job-7"))


def put_there(graveyard: Graveyard) -> None:
    graveyard.publish("orders.dlq", order("job-8"))


def no_queue(graveyard: Graveyard) -> None:
    graveyard.publish("0.0.nowhere", order("job-9"), exchange="orders.due")


@pytest.mark.parametrize(
    ("make", "reason", "queue", "job"),
    [
        (rejected_of_dead_job, "exception", "orders", ("DEAD", "exception")),
        (returned_too_often, "delivery_limit", "orders", ("DEAD", "delivery_limit")),
        (expired_in_the_queue, "expired", "orders", ("DEAD", "expired")),
        (no_celery_message, "undecodable", "orders", None),
        (wrong_shape, "malformed", "orders", None),
        (unknown_task, "unknown_task", "orders", ("DEAD", "unknown_task")),
        (rejected_for_no_known_reason, "rejected", "orders", ("DEAD", "rejected")),
        (put_there, "foreign", "orders", None),
        (no_queue, "unroutable", "redrive.unrouted.dlq", None),
    ],
)
def test_each_way_to_die_has_its_reason_and_ends_its_job(
    graveyard: Graveyard,
    make: Callable[[Graveyard], None],
    reason: str,
    queue: str,
    job: tuple[str, str] | None,
) -> None:
    graveyard.start()
    make(graveyard)
    (row,) = graveyard.until_stored(1)

    assert (row["reason"], row["queue"], row["state"]) == (reason, queue, "open")
    if job is not None:
        found = graveyard.job_row(row["job_id"])
        assert (found["state"], found["reason"], found["letter_id"]) == (*job, row["id"])


def test_letters_that_died_alike_are_one_group_with_the_frame_of_our_own_code(graveyard: Graveyard) -> None:
    graveyard.start()
    for number in range(3):
        graveyard.failed_job(f"job-{number}", TRACEBACK)
        graveyard.bury("orders", order(f"job-{number}"))
    graveyard.until_stored(3)

    (group,) = graveyard.database.fetch("select * from redrive.groups")
    assert (group["letters"], group["exception_type"]) == (3, "ValueError")
    assert group["top_frame"] == "shop/orders.py:place"
    (first, *_) = graveyard.listed("--queue", "orders", "--reason", "exception", "--task", "orders.place")
    assert first["group"] == group["fingerprint"]
    assert first["attempts"][0]["exception_type"] == "ValueError"


def test_a_letter_of_an_earlier_generation_says_nothing_about_the_job_of_now(graveyard: Graveyard) -> None:
    graveyard.start()
    graveyard.job("job-1", "QUEUED", generation=2)
    graveyard.bury("orders", order("job-1", Attempt(1, 1)))
    (row,) = graveyard.until_stored(1)

    assert row["reason"] == "rejected"
    assert graveyard.job_row("job-1")["state"] == "QUEUED"


@pytest.mark.parametrize("state", ["QUEUED", "DEAD"])
def test_a_letter_of_another_task_is_not_that_of_the_job_whose_id_it_bears(
    graveyard: Graveyard, state: str
) -> None:
    graveyard.start()
    graveyard.job("job-1", state)
    graveyard.database.execute("update redrive.jobs set type = 'orders.cancel'")
    graveyard.bury("orders", order("job-1"))
    (row,) = graveyard.until_stored(1)

    assert (row["reason"], row["job_id"]) == ("malformed", None)
    found = graveyard.job_row("job-1")
    assert (found["state"], found["letter_id"]) == (state, None)


def test_a_watched_queue_of_a_stranger_is_drained_too(graveyard: Graveyard) -> None:
    with graveyard.vhost.channel() as channel:
        channel.queue_declare("theirs.dead", durable=True)
        channel.queue_declare(
            "theirs",
            durable=True,
            arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "theirs.dead"},
        )
    graveyard.start(REDRIVE_WATCH="theirs.dead")
    graveyard.bury("theirs", plain(b"\xff not ours"))
    (row,) = graveyard.until_stored(1)

    assert (row["dlq"], row["queue"], row["reason"], row["job_id"]) == (
        "theirs.dead",
        "theirs",
        "rejected",
        None,
    )


def test_a_letter_that_postgres_refuses_is_quarantined_and_the_others_are_stored(
    graveyard: Graveyard,
) -> None:
    graveyard.database.execute(
        "alter table redrive.dead_letters add check (state = 'quarantined' or routing_key <> 'orders'"
        " or message_id <> 'poison')"
    )
    process = graveyard.start()
    for name in ("a", "b", "poison", "c"):
        graveyard.publish("orders", plain(name.encode(), message_id=name))
    graveyard.reject("orders", 4)
    stored = graveyard.until_stored(4)

    assert {bytes(row["body"]): row["state"] for row in stored} == {
        b"a": "open", b"b": "open", b"c": "open", b"poison": "quarantined",
    }  # fmt: skip
    eventually(lambda: graveyard.depth("orders.dlq") == 0, 10, "the queue is empty")
    assert process.exit_code is None


def test_a_named_message_that_dies_twice_within_one_session_is_two_letters(graveyard: Graveyard) -> None:
    """Only in a later session may the broker deliver a letter again; here it is another one."""
    graveyard.start()
    message = plain(b"x", message_id="same")
    graveyard.publish("orders.dlq", message)
    graveyard.until_stored(1)
    graveyard.publish("orders.dlq", message)
    stored = graveyard.until_stored(2)
    assert [row["possible_duplicate"] for row in stored] == [False, False]


def test_letters_whose_dead_letter_queue_was_deleted_are_kept_and_stored(graveyard: Graveyard) -> None:
    with graveyard.vhost.channel() as channel:
        channel.queue_delete("orders.dlq")
    sent = [plain(str(number).encode(), message_id=str(number)) for number in range(10)]
    graveyard.publish("orders", *sent)
    graveyard.reject("orders", 10)
    eventually(lambda: graveyard.depth("redrive.unrouted.dlq") == 10, 20, "the catch-all keeps them")
    graveyard.start(ready=False)
    stored = graveyard.until_stored(10)

    assert sorted(bytes(row["body"]) for row in stored) == sorted(message.body for message in sent)
    assert {(row["dlq"], row["target"]) for row in stored} == {("redrive.unrouted.dlq", "orders")}
    eventually(lambda: graveyard.depth("redrive.unrouted.dlq") == 0, 10, "all are acknowledged")


def test_properties_without_any_header_are_kept(graveyard: Graveyard) -> None:
    graveyard.publish("orders.dlq", Message(properties().encode(), b"bare"))
    graveyard.start()
    (row,) = graveyard.until_stored(1)
    assert bytes(row["body"]) == b"bare"
    assert row["reason"] == "foreign"


def test_a_running_job_is_left_to_its_worker_until_that_is_gone(graveyard: Graveyard) -> None:
    graveyard.start()
    graveyard.job(
        "job-1", "RUNNING", claim=uuid4(), worker="w", lease_until=datetime.now(UTC) + timedelta(minutes=5)
    )
    graveyard.database.execute(
        "insert into redrive.attempts (job_id, generation, attempt, claim, worker)"
        " select id, generation, attempt, claim, worker from redrive.jobs"
    )
    graveyard.bury("orders", order("job-1"))
    (letter,) = graveyard.until_stored(1)
    assert graveyard.job_row("job-1")["state"] == "RUNNING"

    graveyard.database.execute("update redrive.jobs set lease_until = now() - interval '2 minutes'")
    eventually(lambda: graveyard.job_row("job-1")["state"] == "DEAD", 20, "the job is DEAD")

    row = graveyard.job_row("job-1")
    assert (row["reason"], row["letter_id"], row["claim"]) == ("rejected", letter["id"], None)
    assert graveyard.database.value("select outcome from redrive.attempts") == "lost"


def test_copies_of_a_dead_jobs_message_are_one_death_and_settled_together(graveyard: Graveyard) -> None:
    graveyard.failed_job("job-1", TRACEBACK)
    for _ in range(2):  # of one batch, since nothing drains yet
        graveyard.bury("orders", order("job-1"))
    graveyard.start()
    graveyard.until_stored(2)
    graveyard.bury("orders", order("job-1"))
    first, *others = graveyard.until_stored(3)

    assert (first["duplicate_of"], graveyard.job_row("job-1")["letter_id"]) == (None, first["id"])
    assert [(row["duplicate_of"], row["possible_duplicate"]) for row in others] == [(first["id"], True)] * 2
    assert graveyard.database.value("select letters from redrive.groups") == 1
    assert graveyard.database.value("select count(*) from redrive.alerts") == 1
    assert "duplicate of" in graveyard.dlq("list").stdout
    refused = graveyard.dlq("replay", str(others[0]["id"]))
    assert (refused.returncode, f"duplicate of letter {first['id']}" in refused.stderr) == (1, True)

    assert graveyard.dlq("replay", str(first["id"]), "--no-wait").returncode == 0
    eventually(lambda: graveyard.depth("orders") == 1, 10, "the job is sent out again")
    eventually(
        lambda: [row["state"] for row in graveyard.letters()] == ["replayed"] * 3, 10, "all three are settled"
    )
    # A copy that comes late is settled too: nothing is left to be done about that death.
    graveyard.publish("mails", order("job-1"))
    graveyard.reject("mails")
    late = graveyard.until_stored(4)[-1]
    assert (late["duplicate_of"], late["state"]) == (first["id"], "replayed")
    assert graveyard.job_row("job-1")["state"] == "QUEUED"


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"task": "orders.place", "id": "a\x00b"}, b"[[], {}, {}]"),
        ({"task": "orders.place", "id": "x" * 3_000}, b"[[], {}, {}]"),
        ({}, rb'{"task": "orders.place", "id": "\ud800", "args": [], "kwargs": {}}'),
        ({}, rb'{"task": "orders.place", "id": "a\u0000b", "args": [], "kwargs": {}}'),
    ],
)
def test_an_id_that_no_job_can_have_is_a_fault_of_the_message_alone(
    graveyard: Graveyard, headers: dict[str, str], body: bytes
) -> None:
    message = plain(body, content_type="application/json", content_encoding="utf-8", headers=headers)
    graveyard.bury("orders", message)
    graveyard.start()
    (row,) = graveyard.until_stored(1)

    assert (row["state"], row["reason"], row["job_id"]) == ("open", "malformed", None)
    assert headers.items() <= graveyard.shown(row["id"])["headers"].items()
