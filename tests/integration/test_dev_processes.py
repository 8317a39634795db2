"""Children of a run, with real processes: how they end, and that nothing else does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev import runs
from dev.identity import Identity, is_running
from dev.leftovers import begin, close_run
from dev.processes import Child, end, spawn
from dev.runs import ProcessRecord, Run, RunState, load_state
from tests.support.waiting import eventually

STUBBORN = 'trap "" TERM; sleep 600 & echo $! > child; echo ready; wait'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setattr(runs, "LOCAL", tmp_path / ".local")
    begun = begin("demo", print)
    yield begun
    close_run(begun, print)


def stubborn(run: Run) -> Child:
    child = spawn(run, "stubborn", ["sh", "-c", STUBBORN], cwd=run.directory)
    eventually(lambda: "ready" in child.log.read_text(), what="the child is ready")
    return child


def grandchild(run: Run) -> int:
    return int((run.directory / "child").read_text())


def runs_still(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_child_is_asked_to_stop_before_it_is_killed(run: Run) -> None:
    child = spawn(run, "polite", ["sh", "-c", 'trap "exit 7" TERM; echo ready; while :; do sleep 0.05; done'])
    eventually(lambda: "ready" in child.log.read_text(), what="the child is ready")
    assert child.stop(grace=10) == 7


def test_a_child_that_ignores_the_request_is_killed_with_all_it_started(run: Run) -> None:
    child = stubborn(run)
    assert child.stop(grace=0.2) == -signal.SIGKILL
    eventually(lambda: not runs_still(grandchild(run)), what="the grandchild is gone")
    assert load_state(run.directory).processes == ()


def test_a_child_has_a_session_of_its_own_so_that_ctrl_c_does_not_reach_it(run: Run) -> None:
    child = stubborn(run)
    assert os.getsid(child.pid) == child.pid
    child.kill()


def test_what_a_dead_child_left_running_is_found_by_its_mark(run: Run) -> None:
    child = stubborn(run)
    os.kill(child.pid, signal.SIGKILL)
    child.popen.wait()
    assert runs_still(grandchild(run))
    assert end(child.record, grace=0.2)
    eventually(lambda: not runs_still(grandchild(run)), what="the grandchild is gone")


def test_a_record_whose_number_was_reused_ends_nobody(run: Run) -> None:
    bystander = stubborn(run)
    real = bystander.record.identity
    stale = ProcessRecord(
        "gone", Identity(real.pid, real.started - 1, real.boot), "other-mark", signal.SIGTERM
    )
    assert not end(stale, grace=0.2)
    assert is_running(real)
    bystander.kill()


def test_the_next_run_ends_what_a_crashed_one_left(run: Run) -> None:
    child = spawn(run, "sleeper", ["sleep", "600"])
    run.held.close()  # as the kernel does for a process that dies
    said: list[str] = []
    following = begin("demo", said.append)
    assert said == ["stopped sleeper"]
    assert child.popen.wait() == -signal.SIGTERM
    assert load_state(run.directory) == RunState(owner=following.state.owner)
    close_run(following, print)
