"""A recorded process is found again only if it is the same one; /proc is a directory made by the test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dev.identity import MARK, Identity, family, identify, is_running, parse_stat, send


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("this-boot\n")
    return tmp_path


def process(
    proc: Path,
    pid: int,
    *,
    started: int = 100,
    state: str = "S",
    parent: int = 1,
    group: int = 1,
    mark: str = "",
) -> Identity:
    directory = proc / str(pid)
    directory.mkdir(exist_ok=True)
    between = " ".join(["0"] * 16)
    (directory / "stat").write_text(f"{pid} (a (b) c) {state} {parent} {group} {between} {started} 0 0\n")
    (directory / "environ").write_bytes(b"A=1\0" + (f"{MARK}={mark}\0".encode() if mark else b""))
    return Identity(pid, started, "this-boot")


def test_a_name_with_spaces_and_parentheses_does_not_shift_the_fields(proc: Path) -> None:
    process(proc, 42, started=777, parent=7, group=8)
    found = parse_stat((proc / "42/stat").read_text())
    assert (found.pid, found.state, found.parent, found.group, found.started) == (42, "S", 7, 8, 777)


def test_the_same_process_is_running(proc: Path) -> None:
    assert is_running(process(proc, 42), proc)


def test_a_reused_number_is_another_process(proc: Path) -> None:
    recorded = process(proc, 42, started=100)
    process(proc, 42, started=101)
    assert not is_running(recorded, proc)


def test_the_same_number_and_ticks_after_a_reboot_are_another_process(proc: Path) -> None:
    assert not is_running(replace(process(proc, 42), boot="an-earlier-boot"), proc)


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_process_of_which_only_the_exit_status_is_left_is_not_running(proc: Path, state: str) -> None:
    assert not is_running(process(proc, 42, state=state), proc)


def test_a_process_that_is_gone_is_not_running(proc: Path) -> None:
    assert identify(42, proc) is None
    assert not is_running(Identity(42, 100, "this-boot"), proc)


def test_the_family_is_descendants_group_and_whoever_carries_the_mark(proc: Path) -> None:
    leader = process(proc, 10, group=10)
    child, grandchild = process(proc, 11, parent=10), process(proc, 12, parent=11)
    in_group, marked = process(proc, 13, group=10), process(proc, 14, mark="m")
    process(proc, 15)
    process(proc, 16, mark="m2")
    assert family(leader, "m", proc) == {leader, child, grandchild, in_group, marked}


def test_of_a_dead_leader_only_the_marked_are_family(proc: Path) -> None:
    leader = process(proc, 10, started=100, group=10)
    process(proc, 10, started=900, group=10)  # its number belongs to somebody else now
    process(proc, 11, parent=10, group=10)
    marked = process(proc, 12, mark="m")
    assert family(leader, "m", proc) == {marked}


def test_no_signal_reaches_a_reused_number() -> None:
    own = identify(1)
    assert own is not None
    assert not send(replace(own, started=own.started + 1), 9)
