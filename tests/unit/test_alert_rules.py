"""When letters are worth an alert."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from storage.alert_rules import AlertKind, AlertPolicy, Route, Watch, judge

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
POLICY = AlertPolicy(3600, rate_letters=100, rate_s=60)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def run(watch: Watch, *batches: tuple[float, int], policy: AlertPolicy = POLICY) -> list[tuple[float, str]]:
    """Seconds and kinds of the alerts that batches (seconds, letters) make."""
    told = []
    for at, letters in batches:
        watch, kind = judge(watch, letters, None, policy, after(at))
        if kind is not None:
            told.append((at, str(kind)))
    return told


@pytest.mark.parametrize("news", ["first_seen", "seen_again", "regression"])
def test_news_alerts_and_is_unresolved(news: AlertKind) -> None:
    watch, kind = judge(Watch(resolved_at=NOW), 1, news, POLICY, after(5))
    assert (kind, watch.alerted_at, watch.resolved_at) == (news, after(5), None)


def test_the_rate_alerts_at_its_threshold() -> None:
    assert run(Watch(), (0, 60), (10, 39), (20, 1), (30, 500), (55, 500)) == [(20, "rate")]


def test_a_rate_that_stays_high_alerts_once() -> None:
    assert run(Watch(), *((float(second), 50) for second in range(0, 600, 10))) == [(10, "rate")]


def test_letters_leave_the_window() -> None:
    assert run(Watch(), (0, 99), (65, 99), (130, 99)) == []


def test_a_rate_between_half_and_all_of_the_threshold_is_one_storm() -> None:
    storm = [(float(second), 70) for second in range(0, 600, 40)]  # 70 and 140 in a window, by turns
    assert run(Watch(), *storm) == [(40, "rate")]


def test_a_second_crossing_alerts_after_a_lull() -> None:
    assert run(Watch(), (0, 100), (30, 100), (200, 1), (201, 99)) == [(0, "rate"), (201, "rate")]


def test_a_burst_of_a_group_that_has_just_alerted_is_no_second_alert() -> None:
    told: list[AlertKind | None] = []
    watch, kind = judge(Watch(), 250, "first_seen", POLICY, NOW)
    for second in range(1, 59):
        told.append(kind)
        watch, kind = judge(watch, 170, None, POLICY, after(second))
    assert [each for each in told if each] == ["first_seen"]
    # It goes on for longer than a window: that is another thing to know.
    assert judge(watch, 170, None, POLICY, after(61))[1] == "rate"


def test_no_rate_alerts_where_it_is_off() -> None:
    assert run(Watch(), (0, 10**6), policy=AlertPolicy(3600, rate_letters=0)) == []


@pytest.mark.parametrize("rate_s", [1.0, 3600.0])
def test_another_window_starts_counting_anew(rate_s: float) -> None:
    watch, _ = judge(Watch(), 99, None, POLICY, NOW)
    watch, kind = judge(watch, 1, None, replace(POLICY, rate_s=rate_s), NOW)
    assert (kind, sum(watch.counts)) == (None, 1)


def test_what_came_under_a_snooze_is_told_after_it_once() -> None:
    watch = Watch(alerted_at=after(-500), snoozed_until=after(10))
    assert run(watch, (5, 3), (11, 1), (12, 1)) == [(11, "seen_again")]


def test_a_snooze_under_which_nothing_came_is_followed_by_silence() -> None:
    assert run(Watch(alerted_at=after(-500), snoozed_until=after(10)), (11, 1)) == []


def test_a_route_may_leave_out_what_is_well_again() -> None:
    policy = AlertPolicy(1, routes=(Route("webhook"), Route("sentry", resolved=False)))
    assert policy.channels("first_seen") == ("webhook", "sentry")
    assert policy.channels("resolved") == ("webhook",)
