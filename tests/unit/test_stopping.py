"""How long each part of a stop may take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from workers.settings import WorkerSettings
from workers.stopping import deadlines

ROOT = Path(__file__).parents[2]
DEFAULT = WorkerSettings.model_fields["grace_s"].default


@pytest.mark.parametrize(
    ("grace_s", "run_s", "settle_s"), [(25.0, 20.0, 23.75), (900.0, 895.0, 898.75), (4.0, 2.0, 3.5)]
)
def test_the_last_seconds_of_the_grace_are_for_handing_back(
    grace_s: float, run_s: float, settle_s: float
) -> None:
    found = deadlines(100.0, grace_s)
    assert (found.run_until, found.settle_until, found.end) == (100 + run_s, 100 + settle_s, 100 + grace_s)


def test_the_default_ends_before_kubernetes_kills() -> None:
    """terminationGracePeriodSeconds is 30 unless the pod says otherwise."""
    assert DEFAULT < 30


def test_compose_waits_for_longer_than_a_worker_takes() -> None:
    worker = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]["worker"]
    assert worker["command"][0] == "celery", "process 1, which gets the signal"
    minutes, seconds = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", worker["stop_grace_period"]).groups("0")  # type: ignore[union-attr]
    assert DEFAULT < int(minutes) * 60 + int(seconds) <= DEFAULT + 30
