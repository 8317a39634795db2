"""Reason, origin and group of a letter, from its bytes and its job's row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dlq_consumer.classify import UNRECORDED, classify
from dlq_consumer.fingerprint import group_of, top_frame
from dlq_consumer.reading import Reading, read
from storage.intake import JobFacts
from storage.new_letters import NewLetter
from tests.support.graveyard import order, plain
from tests.support.small_topology import TOPOLOGY
from topology.channel import Delivery
from topology.headers import Attempt
from topology.messages import Message
from topology.wire import split

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
DIED = datetime(2026, 1, 31, 11, tzinfo=UTC)


def died(message: Message, reason: str | None, queue: str = "orders", **entry: Any) -> Message:
    if reason is None:
        return message
    death = {"queue": queue, "reason": reason, "count": 1, "time": DIED} | entry
    return Message(split(message.properties).with_header("x-death", [death]).encode(), message.body)


def reading(message: Message, dlq: str = "orders.dlq", exchange: str = "orders.dlx") -> Reading:
    delivery = Delivery(1, False, exchange, "orders", "c", message.properties, message.body)
    tasks = frozenset(job.name for job in TOPOLOGY.jobs)
    return read(delivery, dlq=dlq, source=f"rabbit / {dlq}", known_tasks=tasks, now=NOW)


def letter(message: Message, job: JobFacts | None = None, dlq: str = "orders.dlq") -> NewLetter:
    return classify(reading(message, dlq), job, topology=TOPOLOGY, now=NOW)


def job(
    state: str = "DEAD", reason: str = "exhausted", generation: int = 1, task: str = "orders.place"
) -> JobFacts:
    frame = 'File "/a/b/c/d.py", line 1, in f'
    return JobFacts("j", task, state, generation, 1, reason, "ValueError", "no", frame)


WELL_FORMED = order("j")
NO_SUCH_TASK = plain(b"[[],{},{}]", content_type="application/json", headers={"task": "no", "id": "j"})
EXPIRED = Message(
    split(WELL_FORMED.properties).with_header("expires", "2026-01-31T10:00:00+00:00").encode(),
    WELL_FORMED.body,
)
EXPIRES_LATER = Message(
    split(WELL_FORMED.properties).with_header("expires", "2026-01-31T11:30:00+00:00").encode(),
    WELL_FORMED.body,
)


@pytest.mark.parametrize(
    ("message", "row", "dlq", "reason"),
    [
        (died(WELL_FORMED, "rejected"), job(), "orders.dlq", "exhausted"),
        (died(WELL_FORMED, "rejected"), job("RUNNING"), "orders.dlq", "rejected"),
        (died(WELL_FORMED, "rejected"), job(generation=2), "orders.dlq", "rejected"),
        (died(order("j", Attempt(2, 1)), "rejected"), job(generation=2), "orders.dlq", "exhausted"),
        (died(WELL_FORMED, "rejected"), None, "orders.dlq", "rejected"),
        (died(WELL_FORMED, "delivery_limit"), job(), "orders.dlq", "delivery_limit"),
        (died(WELL_FORMED, "expired"), None, "orders.dlq", "expired"),
        (died(WELL_FORMED, "maxlen"), None, "orders.dlq", "maxlen"),
        (died(WELL_FORMED, "invented"), None, "orders.dlq", "unknown"),
        (WELL_FORMED, None, "orders.dlq", "foreign"),
        (died(WELL_FORMED, "rejected"), job(), "redrive.unrouted.dlq", "unroutable"),
        (WELL_FORMED, None, "redrive.unrouted.dlq", "unroutable"),
        (died(plain(b"{", content_type="application/json"), "rejected"), None, "orders.dlq", "undecodable"),
        (died(plain(b"x"), "rejected"), None, "orders.dlq", "undecodable"),
        (died(plain(b"[1]", content_type="application/json"), "rejected"), None, "orders.dlq", "malformed"),
        (died(NO_SUCH_TASK, "rejected"), None, "orders.dlq", "unknown_task"),
        (died(EXPIRED, "rejected"), None, "orders.dlq", "expired"),
        (died(EXPIRES_LATER, "rejected"), None, "orders.dlq", "rejected"),
        # Queues that are not ours: what their consumers take for well-formed is not ours to say.
        (died(plain(b"x"), "rejected", "theirs"), None, "theirs.dead", "rejected"),
    ],
)  # fmt: skip
def test_the_reason(message: Message, row: JobFacts | None, dlq: str, reason: str) -> None:
    assert letter(message, row, dlq).reason == reason


def test_a_rejection_that_nobody_recorded_says_where_to_look() -> None:
    assert letter(died(WELL_FORMED, "rejected"), None).detail == UNRECORDED
    assert letter(died(plain(b"x"), "rejected", "theirs"), None, "theirs.dead").detail is None
    assert letter(died(WELL_FORMED, "rejected"), job()).detail is None


def test_a_ladder_step_stands_for_its_work_queue() -> None:
    made = letter(died(WELL_FORMED, "expired", "orders.retry.250ms"), None, "redrive.unrouted.dlq")
    assert (made.queue, made.target) == ("orders", "orders")


def test_a_letter_of_unknown_origin_has_no_target_and_is_listed_under_where_it_was_found() -> None:
    made = letter(plain(b"x"), None, "theirs.dead")
    assert (made.queue, made.target) == ("theirs.dead", None)


def test_names_and_times_are_taken_from_the_message() -> None:
    made = letter(died(order("j", Attempt(3, 2)), "rejected"))
    assert (made.job_id, made.message_id, made.task) == ("j", "j", "orders.place")
    assert (made.generation, made.attempt, made.dead_at) == (3, 2, DIED)


def test_the_time_of_an_entry_that_counts_several_deaths_is_not_that_of_this_one() -> None:
    assert letter(died(WELL_FORMED, "rejected", count=2)).dead_at == NOW


def test_what_postgres_refuses_in_text_is_spelled_out() -> None:
    made = letter(died(plain(b"x", message_id="a\x00b"), "rejected", "q\x00"), None, "theirs.dead")
    assert (made.message_id, made.queue, made.target) == ("a\\u0000b", "q\\u0000", None)


def test_properties_that_cannot_be_taken_apart_are_quarantined_as_they_are() -> None:
    made = letter(Message(b"\xff\xff\x00", b"body"))
    assert (made.state, made.reason, made.properties, made.body) == (
        "quarantined", "unknown", b"\xff\xff\x00", b"body",
    )  # fmt: skip


OURS = '  File "/srv/app/shop/orders.py", line 12, in place\n    check(order)\n'
LIBRARY = '  File "/srv/.venv/lib/python3.11/site-packages/x/y.py", line 3, in z\n    pass\n'


@pytest.mark.parametrize(
    ("traceback", "frame"),
    [
        (LIBRARY + OURS + LIBRARY, "shop/orders.py:place"),
        (OURS.replace("12", "99"), "shop/orders.py:place"),
        (LIBRARY, "x/y.py:z"),
        (OURS + '  File "<string>", line 1, in evil\n', "shop/orders.py:place"),
        ("ValueError: no", None),
    ],
)
def test_the_top_frame_is_the_deepest_of_our_own_code(traceback: str, frame: str | None) -> None:
    assert top_frame(traceback) == frame


def test_a_group_is_the_same_only_for_the_same_five() -> None:
    one: dict[str, Any] = {"queue": "q", "task": "t", "reason": "r", "exception_type": "e", "frame": "f"}
    same = group_of(**one)
    assert group_of(**one) == same
    others = {group_of(**(one | {name: "other"})).fingerprint for name in one}
    assert len(others | {same.fingerprint}) == 6
    assert group_of(**(one | {"task": None})).fingerprint not in others


def test_what_is_no_task_message_is_so_whatever_became_of_the_job_whose_id_it_bears() -> None:
    bent = died(Message(WELL_FORMED.properties, b"[1]"), "rejected")

    assert (letter(bent, job()).reason, letter(bent, job()).exception_type) == ("malformed", None)


def test_a_message_of_another_task_is_not_the_job_whose_id_it_bears() -> None:
    for state in ("QUEUED", "DEAD"):
        found = letter(died(WELL_FORMED, "rejected"), job(state, task="orders.cancel"))
        assert (found.reason, found.job_id, found.exception_type) == ("malformed", None, None)
        assert found.detail == "its id is that of a job of task 'orders.cancel'"


def test_what_expired_within_the_second_that_the_broker_tells_had_expired() -> None:
    properties = split(WELL_FORMED.properties).with_header("expires", "2026-01-31T11:00:00.700+00:00")

    assert letter(died(Message(properties.encode(), WELL_FORMED.body), "rejected")).reason == "expired"
