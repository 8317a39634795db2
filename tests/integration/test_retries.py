"""Every way to ask for a retry, through a real worker: the retry waits in the broker and is the same job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import pytest

from tests.support.shared import Places, Shared
from tests.support.work import TIME_SCALE, Work, shared_work
from topology.headers import ATTEMPT, DEATH_HEADERS, DELIVERY_COUNTERS, PUBLISH, Attempt
from topology.messages import task_message
from topology.wire import RawProperties, properties, split

# Over the promise of 10 %: the second that it allows, and four for a busy machine.
SLACK_S = 5.0


@pytest.fixture(scope="module")
def shared(places: Places) -> Iterator[Shared[Work]]:
    with shared_work(places, "-Q", "work", module="tests.support.retry_jobs") as shared:
        yield shared


@pytest.fixture
def work(shared: Shared[Work], request: pytest.FixtureRequest) -> Iterator[Work]:
    with shared.lent(request.node) as work:
        yield work


def ends(work: Work, job: str) -> list[str]:
    return [attempt["reason"] or attempt["outcome"] for attempt in work.attempts(job)]


def waited_s(work: Work, job: str) -> float:
    """Real seconds between the end of the first run and the start of the second."""
    first, second = work.attempts(job)[:2]
    return float((second["started_at"] - first["ended_at"]).total_seconds())


def in_time(waited: float, asked: float) -> bool:
    return asked <= waited <= asked * 1.10 + SLACK_S


HOW: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "limits": ({"time_limit": 50, "soft_time_limit": 40}, {"limits": [50, 40]}),
    "priority": ({"priority": 3}, {"priority": 3}),
    "nothing": ({}, {"retries": 1, "limits": [None, None]}),
}


def test_a_retry_may_change_what_its_message_says(work: Work) -> None:
    jobs = {name: work.submit("r.once", how=how | {"countdown": 0.1}) for name, (how, _) in HOW.items()}
    for name, job in jobs.items():
        found, expected = work.result(job), HOW[name][1]
        assert {key: found[key] for key in expected} == expected, name
        assert found["id"] == job
    work.until_settled()


def test_a_retry_may_go_to_another_queue(work: Work) -> None:
    job = work.submit("r.once", how={"queue": "aside", "countdown": 0.1})
    work.until(job, "RETRYING")
    with work.vhost.channel() as channel:
        for method, properties, _ in channel.consume("aside", inactivity_timeout=30):
            assert method is not None, "nothing came"
            assert (properties.message_id, properties.headers[ATTEMPT]) == (job, "1.2")
            assert properties.headers["retries"] == 1
            channel.basic_ack(method.delivery_tag)
            break
        channel.cancel()


def test_a_retry_with_an_expiry_that_is_over_by_then_is_dead_lettered_and_does_not_run(work: Work) -> None:
    job = work.submit("r.once", how={"expires": 0.1, "countdown": 5})
    ((properties, _),) = work.until_letters(1)
    assert (properties.message_id, properties.headers[ATTEMPT]) == (job, "1.2")
    assert ends(work, job) == ["retry"]


@pytest.mark.parametrize("form", ["aware", "elsewhere", "naive", "text"])
def test_a_retry_at_a_time_comes_back_at_that_time(work: Work, form: str) -> None:
    job = work.submit("r.eta", seconds=1.0, form=form)
    work.result(job)
    first, second = work.attempts(job)
    waited = (second["started_at"] - first["started_at"]).total_seconds()
    assert in_time(waited, 1.0)
    work.until_settled()


def test_a_time_in_the_past_means_at_once(work: Work) -> None:
    job = work.submit("r.eta", seconds=-60.0, form="text")
    assert work.result(job)["retries"] == 1
    assert waited_s(work, job) <= SLACK_S


def test_a_retry_that_is_not_raised_happens_all_the_same(work: Work) -> None:
    job = work.submit("r.quiet")
    assert work.result(job) == "the end"
    assert ends(work, job) == ["retry", "succeeded"]


def test_exhausted_by_its_own_bound_it_is_one_letter_of_the_last_attempt(work: Work) -> None:
    job = work.submit("r.bounded", most=2)
    dead = work.until(job, "DEAD")
    assert (dead["reason"], dead["attempt"]) == ("exhausted", 3)
    assert dead["error"].endswith("ValueError: run 2") or "run 2" in dead["error"]
    ((properties, body),) = work.until_letters(1)
    assert (properties.headers[ATTEMPT], properties.headers["retries"]) == ("1.3", 2)
    assert body == task_message(job, "r.bounded", {"most": 2}).body
    assert ends(work, job) == ["retry", "retry", "exhausted"]


def test_exhausted_without_an_error_of_its_own(work: Work) -> None:
    job = work.submit("r.given_up")
    dead = work.until(job, "DEAD")
    assert dead["reason"] == "exhausted"
    assert "MaxRetriesExceededError" in work.attempts(job)[-1]["exception_type"]
    work.until_letters(1)


def test_autoretry_with_its_own_options(work: Work) -> None:
    tried, untried = work.submit("r.all", kind="ValueError"), work.submit("r.all", kind="KeyError")
    assert work.until(tried, "DEAD")["attempt"] == 3
    assert work.until(untried, "DEAD")["attempt"] == 1
    assert (ends(work, tried)[-1], ends(work, untried)) == ("exhausted", ["exception"])
    work.until_letters(2)


def test_retry_after_in_seconds_and_as_a_date_is_waited_for(work: Work) -> None:
    date = format_datetime((datetime.now(UTC) + timedelta(seconds=30)).replace(microsecond=0), usegmt=True)
    jobs = {header: work.submit("r.limited", header=header) for header in ("5", date)}
    for header, job in jobs.items():
        work.result(job)
        asked = work.attempts(job)[0]["delay_ms"] / 1000
        assert asked == 5 if header == "5" else 20 < asked <= 30
        assert in_time(waited_s(work, job), asked * TIME_SCALE)


def test_a_delay_beyond_the_ladder_takes_laps_and_is_in_time(work: Work) -> None:
    # 20 s nominal over laps of 6.2 s: three and a bit, 4 s of real time.
    job = work.submit("r.once", how={"countdown": 20})
    work.result(job)
    assert in_time(waited_s(work, job), 20 * TIME_SCALE)
    assert ends(work, job) == ["retry", "succeeded"], "a lap is no attempt"
    assert work.job(job)["attempt"] == 2


def test_a_forged_death_record_changes_nothing(work: Work) -> None:
    message = task_message("forged", "r.given_up", {})
    forged = split(message.properties).with_header(
        "x-death", [{"count": 999, "queue": "work", "reason": "rejected", "exchange": ""}]
    )
    work.publish(message.body, RawProperties(forged.encode()))
    assert work.until("forged", "DEAD")["attempt"] == 2
    ((properties, _),) = work.until_letters(1)
    deaths = {(death["queue"], death["reason"]): death["count"] for death in properties.headers["x-death"]}
    assert deaths == {("work", "rejected"): 1, ("work.retry.100ms", "expired"): 1}


def test_three_laps_then_the_dead_letter_queue(work: Work) -> None:
    """Each lap expires in the same retry queue: with the last lap's `x-death` the broker would drop it."""
    job = work.submit("r.bounded", most=3)
    assert work.until(job, "DEAD")["attempt"] == 4
    ((properties, _),) = work.until_letters(1)
    assert properties.headers["x-death"][0]["queue"] == "work"
    assert properties.headers["x-death"][0]["count"] == 1


def test_a_letter_sent_again_with_its_death_record_has_all_its_attempts(work: Work) -> None:
    job = work.submit("r.bounded", most=1)
    work.until(job, "DEAD")
    ((letter, body),) = work.until_letters(1)
    again = split(letter.raw).with_header(ATTEMPT, str(Attempt(2, 1))).with_header("retries", 0)
    assert again.get_header("x-death")
    work.publish(body, RawProperties(again.encode()))
    work.until_letters(1)
    tried = [(attempt["generation"], attempt["attempt"]) for attempt in work.attempts(job)]
    assert tried == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_an_unroutable_publish_raises_in_the_task_and_a_good_one_goes_on(work: Work) -> None:
    with work.vhost.channel() as channel:
        channel.queue_delete("aside")
    before = {queue["name"] for queue in work.vhost.management.get(f"/api/queues/{work.vhost.vhost}").json()}
    try:
        gone, misspelt = work.submit("r.publish", queue="aside"), work.submit("r.publish", queue="asdie")
        error = work.until(gone, "DEAD")["error"]
        assert "NO_ROUTE: no queue took the message" in error
        assert "key 'aside'; run: topology apply" in error
        assert "asdie" in work.until(misspelt, "DEAD")["error"]
        assert work.result(work.submit("r.publish", queue="work")) == "sent"
        after = {
            queue["name"] for queue in work.vhost.management.get(f"/api/queues/{work.vhost.vhost}").json()
        }
        assert after == before
        work.until_letters(2)
    finally:
        work.apply()


def test_a_publish_that_no_frame_holds_is_a_failure_of_its_task_alone(work: Work) -> None:
    """The broker closes the connection over it (501)."""
    job = work.submit("r.publish", queue="work", headers={"k": "A" * 200_000})
    dead = work.until(job, "DEAD")
    assert (dead["reason"], dead["attempt"]) == ("exception", 1)
    assert "frame_too_large" in dead["error"]
    sent = [work.submit("r.publish", queue="work") for _ in range(3)]
    assert [work.result(each) for each in sent] == ["sent"] * 3
    work.until_letters(1)


def test_a_delayed_publish_of_a_task_goes_by_the_ladder(work: Work) -> None:
    job = work.submit("r.publish", queue="work", countdown=5, task_id="from-inside")
    assert work.result(job) == "sent"
    found = work.result("from-inside")
    sent = work.attempts(job)[0]["ended_at"].timestamp()
    assert in_time(found["at"] - sent + 0.5, 5 * TIME_SCALE)
    assert (found["parent"], found["root"]) == (job, job)


def test_four_laps_leave_everything_that_its_sender_wrote(work: Work) -> None:
    embed = {"callbacks": None, "errbacks": None, "chain": [{"task": "r.note", "args": [1]}], "chord": None}
    body = json.dumps([[], {"most": 4, "more": ["\u00e9", 1.5, None]}, embed]).encode()
    headers: dict[str, object] = {
        "task": "r.bounded", "id": "laps", "root_id": "root", "parent_id": "parent", "group": "g",
        "group_index": 3, "retries": 0, "timelimit": [300, 200], "expires": "2090-01-01T00:00:00+00:00",
        "origin": "gen1@there", "lang": "py", "stamped_headers": ["trace"], "stamps": {"trace": "abc"},
        "trace": "abc", "number": 2**40, "negative": -7, "double": 1.5, "yes": True, "nothing": None,
        "bytes": b"\x00\xff", "list": [1, "two", {"three": 3}], "table": {"a": {"b": [True]}},
        "when": datetime(2030, 1, 1, tzinfo=UTC), "decimal": Decimal("12.34"),
    }  # fmt: skip
    sent = properties(
        headers=headers, content_type="application/json", content_encoding="utf-8", delivery_mode=2,
        priority=4, correlation_id="c", reply_to="r", message_id="m", timestamp=1_700_000_000, type="t",
        app_id="shop",
    )  # fmt: skip
    work.publish(body, RawProperties(sent.encode()))
    ((letter, found_body),) = work.until_letters(1, 40)
    found = split(letter.raw)
    assert found_body == body
    assert found.without("headers") == sent.without("headers")
    changed = {"retries", ATTEMPT, PUBLISH, *DEATH_HEADERS, *DELIVERY_COUNTERS}
    kept = {name: value for name, value in found.headers_dict().items() if name not in changed}
    before = split(sent.encode()).headers_dict()
    assert kept == {name: value for name, value in before.items() if name not in changed}
    assert (found.get_header("retries"), found.get_header(ATTEMPT)) == (4, "1.5")
