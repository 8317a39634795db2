"""What `dlq replay` and `POST /replays` refuse before anything is asked or planned."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from api.problems import Problem
from api.routes import replays as routes
from dlq_consumer.cli import main
from storage.replay_progress import Figures
from storage.replays import Asked

NO_QUEUE = ("", "q" * 256, "é" * 128, "a\x00b", "\udcff\udcfe", "\ud800")
TOO_LARGE = str(2**63)


@pytest.mark.parametrize("rate", [1e-310, 0.0009, 0.0, -1.0, 1e9, float("nan")])
def test_a_rate_has_a_floor(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        Asked("me", rate=rate)
    assert _refused(rate=rate) == ["rate"]
    answer = CliRunner().invoke(main, ["replay", "1", "--rate", str(rate)])
    assert (answer.exit_code, "--rate" in answer.output) == (2, True)


def test_the_lowest_rate_is_one() -> None:
    assert Asked("me", rate=0.001).rate == routes._asked({"letter_ids": [1], "rate": 0.001}).rate == 0.001


def test_no_time_left_is_infinite() -> None:
    assert Figures({"staged": 3}).eta_s(1e-310) is None


@pytest.mark.parametrize("name", NO_QUEUE)
def test_what_cannot_be_a_queue_is_refused(name: str) -> None:
    assert _refused(to=name) == ["to"]
    answer = CliRunner().invoke(main, ["replay", "1", "--to", name])
    assert (answer.exit_code, "--to" in answer.output) == (2, True)


def test_a_queue_may_have_255_bytes() -> None:
    for name in ("q" * 255, "é" * 127):
        assert routes._asked({"letter_ids": [1], "to": name}).to == name


@pytest.mark.parametrize("command", ["replay", "discard", "restore", "show", "edit"])
def test_an_id_that_no_letter_can_have_is_a_wrong_usage(command: str) -> None:
    answer = CliRunner().invoke(main, [command, TOO_LARGE])
    assert (answer.exit_code, TOO_LARGE in answer.output) == (2, True)


def test_a_breaker_that_is_named_is_insisted_on() -> None:
    named, default = ({"letter_ids": [1], "breaker": 5}, {"letter_ids": [1]})
    assert [routes._asked(body).by("me").insists for body in (named, default)] == [True, False]
    assert routes._asked({"letter_ids": [1], "breaker": 0}).by("me").breaker is None


def _refused(**fields: Any) -> list[str]:
    with pytest.raises(Problem) as caught:
        routes._asked({"letter_ids": [1]} | fields)
    assert caught.value.status == 422
    return [error.field for error in caught.value.errors]
