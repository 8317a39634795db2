"""Callbacks: what a submission may ask for, what is sent, and when again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from api.callback import read_callback
from api.problems import FieldError, Problem
from api.submission import read_submission
from dlq_consumer.callbacks.message import MAX_RESULT, body
from dlq_consumer.callbacks.places import (
    AT_ONCE,
    DOUBTFUL_AT_ONCE,
    MOST_KNOWN,
    PER_PLACE,
    PROMPT_S,
    Places,
)
from dlq_consumer.callbacks.schedule import MOST_TRIES, is_deaf, pause_s, retry_in_s, why_dead
from outbound.poster import Answer
from outbound.reach import Reach
from outbound.settings import CallbackSettings
from storage.callbacks import Callback, Room
from storage.job_callbacks import FINAL, JobCallback, shown_url
from topology.catalogue import TOPOLOGY

WHEN = datetime(2026, 1, 31, 12, tzinfo=UTC)
REACH = Reach()
URL = "https://hooks.example/jobs?token=s3cret"
GOOD = {"type": "webhooks.handle_webhook", "payload": {"event_id": "e", "kind": "k", "data": {}}}
ENDED = Callback(
    "id", "job", 2, 3, "SUCCEEDED", None, None, WHEN, 1, WHEN, "hooks.example:443", URL, "t", "q", WHEN,
    17, b'{"a": NaN, "b": "\\ud800"}',
)  # fmt: skip


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example", "https://hooks.example/"),
        ("https://hooks.example/", "https://hooks.example/"),
        ("https://hooks.example/services/T0/B0/s3cret", "https://hooks.example/…"),
        ("https://hooks.example:8443?token=s3cret", "https://hooks.example:8443/…"),
    ],
)
def test_what_is_shown_of_a_url_is_where_it_leads_and_no_secret(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def faults(reach: Reach | None = REACH, **asked: Any) -> list[FieldError]:
    errors: list[FieldError] = []
    assert read_callback(asked, reach, errors) is None or not errors
    return errors


def test_a_callback_is_read_with_the_ends_that_it_is_told_of() -> None:
    assert read_callback({"callback_url": URL}, REACH, []) == JobCallback(URL, "hooks.example:443", FINAL)
    some = read_callback({"callback_url": URL, "callback_on": ["DEAD"]}, REACH, [])
    assert some is not None
    assert (some.states, some.shown_url) == (("DEAD",), "https://hooks.example/…")
    assert read_callback({}, REACH, []) is None


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"callback_url": 7}, "callback_url"),
        ({"callback_url": "hooks.example"}, "callback_url"),
        ({"callback_url": "http://hooks.example/"}, "callback_url"),
        ({"callback_url": "https://10.0.0.1/?token=s3cret"}, "callback_url"),
        ({"callback_url": "https://me:s3cret@hooks.example/"}, "callback_url"),
        ({"callback_on": ["DEAD"]}, "callback_on"),
        ({"callback_url": URL, "callback_on": []}, "callback_on"),
        ({"callback_url": URL, "callback_on": "DEAD"}, "callback_on"),
        ({"callback_url": URL, "callback_on": ["RUNNING"]}, "callback_on"),
        ({"callback_url": URL, "callback_on": [["DEAD"]]}, "callback_on"),
        ({"callback_url": URL, "callback_on": ["DEAD", "DEAD"]}, "callback_on"),
    ],
)
def test_what_cannot_be_called_is_refused_by_field_without_its_secret(
    asked: dict[str, Any], field: str
) -> None:
    (fault,) = faults(**asked)
    assert fault.field == field
    assert "s3cret" not in fault.message


def test_without_a_secret_no_callback_is_taken() -> None:
    (fault,) = faults(None, callback_url=URL)
    assert (fault.field, "REDRIVE_CALLBACK_SECRET" in fault.message) == ("callback_url", True)
    with pytest.raises(Problem, match="callback_url"):
        read_submission(TOPOLOGY, GOOD | {"callback_url": URL}, ["k"])


def test_a_callback_belongs_to_the_request_of_a_key() -> None:
    def digest(**asked: Any) -> bytes:
        return read_submission(TOPOLOGY, GOOD | asked, ["k"], callbacks=REACH).request

    found = {digest(), digest(callback_url=URL), digest(callback_url=URL, callback_on=["DEAD"])}
    assert len(found | {digest(priority=1), digest(priority=1, callback_url=URL)}) == 5


def test_the_body_is_the_end_as_it_was() -> None:
    said = json.loads(body(ENDED, WHEN))
    assert said == {
        "id": "id",
        "event": "job.ended",
        "job": {
            "id": "job", "type": "t", "queue": "q", "state": "SUCCEEDED", "generation": 2, "attempt": 3,
            "reason": None, "created_at": WHEN.isoformat(), "finished_at": WHEN.isoformat(),
            "result": {"a": {"$float": "NaN"}, "b": "\ud800"}, "error": None,
        },
        "result_left_out": None,
        "sent_at": WHEN.isoformat(),
    }  # fmt: skip
    large = json.loads(body(replace(ENDED, result=None, result_size=MAX_RESULT + 1), WHEN))
    assert (large["job"]["result"], large["result_left_out"]) == (None, MAX_RESULT + 1)
    dead = body(replace(ENDED, result=None, result_size=None, error="x" * 100_000), WHEN)
    assert json.loads(dead)["result_left_out"] is None
    assert len(dead) < 5_000


def test_pauses_double_up_to_an_hour_and_are_spread() -> None:
    assert [retry_in_s(tries, 0.5) for tries in (1, 2, 3, 10, 11, 31)] == [5, 10, 20, 2560, 3600, 3600]
    assert [round(retry_in_s(1, chance), 6) for chance in (0.0, 1.0)] == [4, 6]
    a_day = sum(retry_in_s(tries, 0.5) for tries in range(1, MOST_TRIES)) / 3_600
    assert 21 < a_day < 24


def test_what_the_receiver_asks_for_is_heeded() -> None:
    assert retry_in_s(1, 0.5, "120") == 120
    assert retry_in_s(11, 0.5, "1") == 3_600
    assert retry_in_s(1, 0.5, "1e12") == 86_400
    assert retry_in_s(1, 0.5, "soon") == 5
    assert why_dead(1, Answer(410)) is not None
    assert why_dead(MOST_TRIES - 1, Answer(404)) is None
    assert why_dead(MOST_TRIES, None) == f"not taken in {MOST_TRIES} tries"
    assert [is_deaf(answer) for answer in (None, Answer(503), Answer(429), Answer(404))] == [
        True, True, True, False,
    ]  # fmt: skip


def test_a_long_look_is_followed_by_a_pause_and_no_pause_is_endless() -> None:
    assert [pause_s(look_s) for look_s in (0, 0.02, 0.3, 60)] == [0, 0, 1.2, 10]


def test_two_secrets_at_most() -> None:
    def settings(secret: str) -> CallbackSettings:
        return CallbackSettings(_env_file=None, secret=secret)  # type: ignore[call-arg, arg-type]

    assert settings("new old").secrets == ("new", "old")
    assert settings("").secrets == ()
    assert "new" not in repr(settings("new"))
    with pytest.raises(ValueError, match="3 secrets"):
        settings("a b c")


def test_deaf_receivers_however_many_leave_half_of_the_room_to_others() -> None:
    places = Places()
    for number in range(100):
        places.heard(f"deaf-{number}:443", deaf=True, took_s=1)
    assert free(places) == places.doubtful == DOUBTFUL_AT_ONCE < AT_ONCE
    turns = [place for place, room in places.rooms(lambda each: each[::-1]).items() if room.free]
    assert turns != [place for place, room in places.rooms(list).items() if room.free]
    for number in range(DOUBTFUL_AT_ONCE - 1):
        places.begin(f"deaf-{number}:443")
    places.heard("quick:443", deaf=False, took_s=1)
    for _ in range(3):
        places.begin("quick:443")
    rooms = places.rooms(list)
    assert (rooms["quick:443"], rooms["deaf-0:443"].free, free(places)) == (Room(1, prompt=True), 0, 2)
    places.heard("deaf-0:443", deaf=False, took_s=1)
    assert places.rooms(list)["deaf-0:443"] == Room(PER_PLACE - 1, prompt=True)
    for number in range(DOUBTFUL_AT_ONCE - 1):
        places.end(f"deaf-{number}:443")
    assert places.rooms(list)["deaf-0:443"] == Room(PER_PLACE, prompt=True)


def test_receivers_that_are_new_forgotten_or_slow_share_the_room_of_deaf_ones() -> None:
    places = Places()
    places.heard("quick:443", deaf=False, took_s=PROMPT_S)
    places.heard("slow:443", deaf=False, took_s=PROMPT_S + 1)
    for number in range(MOST_KNOWN * 3):
        places.heard(f"deaf-{number}:443", deaf=True, took_s=20)
    rooms = places.rooms(list)
    assert len(rooms) == MOST_KNOWN + 1
    assert f"deaf-{MOST_KNOWN * 3 - 1}:443" in rooms
    assert (rooms["quick:443"].prompt, "slow:443" in rooms, "deaf-0:443" in rooms) == (True, False, False)
    for place in ("new:443", "slow:443", "deaf-0:443"):
        for _ in range(PER_PLACE):
            places.begin(place)
    assert places.doubtful == DOUBTFUL_AT_ONCE - 3 * PER_PLACE
    places.begin("quick:443")
    assert places.doubtful == DOUBTFUL_AT_ONCE - 3 * PER_PLACE
    for number in range(MOST_KNOWN):
        places.heard(f"other-{number}:443", deaf=False, took_s=1)
    assert not places.rooms(list)["quick:443"].prompt
    places.heard("other-0:443", deaf=True, took_s=1)
    assert not places.rooms(list)["other-0:443"].prompt


def test_what_is_on_its_way_counts_for_its_caller_while_the_place_is_not_known_to_be_prompt() -> None:
    places = Places()
    for place, caller in (("new:443", "flood"), ("other:443", "flood"), ("new:443", "shop")):
        places.begin(place, caller)
    assert places.callers == {"flood": 2, "shop": 1}
    places.heard("new:443", deaf=False, took_s=1)
    assert places.callers == {"flood": 1}
    places.end("other:443", "flood")
    places.heard("new:443", deaf=True, took_s=1)
    assert places.callers == {"flood": 1, "shop": 1}


def free(places: Places) -> int:
    return sum(room.free for room in places.rooms(list).values())
