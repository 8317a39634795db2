"""What the processes of a run are given, and what the story makes of what it sees."""

from __future__ import annotations

from io import TextIOWrapper
from pathlib import Path
from typing import cast

import pytest

from dev.borrowed import name_for
from dev.runs import ROOT, Run
from dev.servers import ServerUrls
from dev.stack import Stack
from dev.story.ladder_watch import Sighting, seen_between
from dev.story.telling import NotSeen, expect
from dev.up import summary

URLS = ServerUrls("amqp://u:p@127.0.0.1:1/v", "http://u:p@127.0.0.1:2", "postgresql://u:p@127.0.0.1:3/d")


def stack(given: dict[str, str]) -> Stack:
    run = Run("up", ROOT / ".local" / "up", cast(TextIOWrapper, None))
    return Stack.over(run, URLS, Path(), print, given)


def test_what_is_not_given_is_provided() -> None:
    made = stack({})
    assert made.settings["REDRIVE_THIRD_PARTY_URL"] == made.third_party_url
    assert made.settings["REDRIVE_ALERT_WEBHOOK_URL"] == f"{made.sink_url}/alerts"
    assert len(made.settings["REDRIVE_ALERT_WEBHOOK_SECRET"]) == 32
    assert made.settings["REDRIVE_ALERT_ALLOW"] == made.settings["REDRIVE_CALLBACK_ALLOW"] == "127.0.0.1"
    assert made.settings["REDRIVE_CALLBACK_SECRET"] == made.settings["REDRIVE_ALERT_WEBHOOK_SECRET"]
    assert len({made.api_url, made.third_party_url, made.sink_url}) == 3


def test_what_is_given_is_used_and_no_stub_of_ours_is_started_for_it() -> None:
    given = {
        "REDRIVE_THIRD_PARTY_URL": "https://pay.example",
        "REDRIVE_ALERT_WEBHOOK_URL": "https://hooks.example/1",
        "REDRIVE_ALERT_WEBHOOK_SECRET": "theirs",
    }
    made = stack(given)
    assert (made.third_party_url, made.sink_url) == ("", "")
    assert given.items() <= made.settings.items()


def test_the_summary_says_where_alerts_are_to_be_found() -> None:
    own = stack({})
    assert f"Alerts         {own.sink_url}/_received" in summary(own, own.run.directory / "env", "docker")
    hook = {"REDRIVE_ALERT_WEBHOOK_URL": "https://hooks.example/token", "REDRIVE_ALERT_WEBHOOK_SECRET": "s"}
    told = summary(stack(hook), own.run.directory / "env", "docker")
    assert "Alerts         go to REDRIVE_ALERT_WEBHOOK_URL" in told
    assert "token" not in told


def test_the_servers_of_the_run_go_before_any_others() -> None:
    made = stack({"REDRIVE_AMQP_URL": "amqp://elsewhere"})
    assert made.settings["REDRIVE_AMQP_URL"] == URLS.amqp


def test_no_other_setting_of_ours_reaches_the_processes_and_no_proxy_stands_before_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDRIVE_WORKER_CRASH_BOUND", "99")
    monkeypatch.setenv("NO_PROXY", "intranet")
    environment = stack({}).environment()
    assert "REDRIVE_WORKER_CRASH_BOUND" not in environment
    assert environment["NO_PROXY"] == "intranet,127.0.0.1,localhost"


def test_borrowed_names_are_the_same_each_time_and_differ_by_purpose() -> None:
    assert name_for("demo") == name_for("demo")
    assert name_for("demo") != name_for("up")


def test_a_wait_is_seen_in_the_queues_of_its_own_time() -> None:
    sightings = [
        Sighting(1.0, "q.1s"),
        Sighting(1.5, "q.1s"),
        Sighting(2.0, "q.250ms"),
        Sighting(9.0, "q.2s"),
    ]
    assert seen_between(sightings, 0.5, 3.0) == ["q.1s", "q.250ms"]
    assert seen_between(sightings, 3.0, 8.0) == []


def test_what_was_not_seen_is_loud() -> None:
    expect(True, "something", None)
    with pytest.raises(NotSeen, match="expected one charge; seen instead: 2"):
        expect(False, "one charge", 2)
