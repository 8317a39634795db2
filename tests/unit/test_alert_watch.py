"""When a queue counts as drained by nobody, and a letter as too old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dlq_consumer.alert_watch import Undrained, about_oldest, subject_of
from dlq_consumer.channels.sentry import Dsn
from storage.alert_subjects import Oldest
from topology.watched import Place

PLACE = Place("/", "q.dlq")
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def wrong(watch: Undrained, consumers: dict[str, int | None], now: float) -> list[bool]:
    return [condition.wrong for condition in watch.conditions({"/": consumers}, now)]


def test_a_queue_without_consumer_for_the_time_is_wrong_and_before_that_nothing_is_said() -> None:
    watch = Undrained([PLACE], 60)
    assert wrong(watch, {"q.dlq": 0}, 0) == []
    assert wrong(watch, {"q.dlq": 0}, 59) == []
    assert wrong(watch, {"q.dlq": 0}, 60) == [True]


def test_one_consumer_of_anyone_begins_it_anew() -> None:
    watch = Undrained([PLACE], 60)
    wrong(watch, {"q.dlq": 0}, 0)
    assert wrong(watch, {"q.dlq": 1}, 30) == [False]
    assert wrong(watch, {"q.dlq": 0}, 61) == []


def test_a_queue_that_is_gone_is_drained_by_nobody() -> None:
    watch = Undrained([PLACE], 0)
    (condition,) = watch.conditions({"/": {}}, 0)
    assert "does not exist" in condition.detail


def test_nothing_is_said_of_what_the_broker_does_not_tell() -> None:
    watch = Undrained([PLACE], 0)
    assert watch.conditions({}, 0) == []
    assert wrong(watch, {"q.dlq": None}, 0) == []


def test_a_subject_is_spelled_as_the_setting_spells_the_queue() -> None:
    assert subject_of(Place("/", "a,b/c")) == "no_consumer://%2F/a%2Cb%2Fc"


def test_the_oldest_letter_is_named_with_its_age() -> None:
    condition = about_oldest(Oldest(7, NOW - timedelta(hours=30), too_old=True), 86_400, NOW)
    assert (condition.wrong, condition.letter_id) == (True, 7)
    assert condition.detail == "letter 7 has waited 30.0 h for a decision; 24 h are allowed"
    assert not about_oldest(None, 86_400, NOW).wrong


def test_a_dsn_gives_the_envelope_url_and_the_key() -> None:
    # As sentry-sdk 2.75 makes them of this DSN.
    dsn = Dsn.parse("http://pub@127.0.0.1:9000/prefix/42")
    assert (dsn.url, dsn.key) == ("http://127.0.0.1:9000/prefix/api/42/envelope/", "pub")
