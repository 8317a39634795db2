"""Which process a number means: a pid together with its start time, as Linux keeps them in /proc.

A pid alone is reused; with the start time (field 22 of proc(5) stat, in clock ticks since boot) and the
boot id it is not. Every child also carries a mark in its environment, which its own children inherit.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = "REDRIVE_DEV_PROCESS"
PROC = Path("/proc")


@dataclass(frozen=True)
class Identity:
    """One process of one boot: `started` is in clock ticks since that boot."""

    pid: int
    started: int
    boot: str


@dataclass(frozen=True)
class Stat:
    """The fields of proc(5) stat that we use."""

    pid: int
    state: str
    parent: int
    group: int
    started: int


def parse_stat(text: str) -> Stat:
    """Parses /proc/<pid>/stat. The name stands in parentheses and may itself hold spaces and parentheses."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return Stat(
        pid=int(head.split(" ", 1)[0]),
        state=fields[0],
        parent=int(fields[1]),
        group=int(fields[2]),
        started=int(fields[19]),
    )


def stat(pid: int, proc: Path = PROC) -> Stat | None:
    """None when there is no such process, or only its exit status is left of it (a zombie)."""
    try:
        found = parse_stat((proc / str(pid) / "stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if found.state in "ZX" else found


def identify(pid: int, proc: Path = PROC) -> Identity | None:
    found = stat(pid, proc)
    return None if found is None else Identity(pid, found.started, _boot(proc))


def is_running(identity: Identity, proc: Path = PROC) -> bool:
    """False as well when the number now belongs to another process."""
    return identify(identity.pid, proc) == identity


def send(identity: Identity, signum: int) -> bool:
    """Signals exactly this process; False when it is gone."""
    if not is_running(identity):
        return False
    try:
        os.kill(identity.pid, signum)
    except ProcessLookupError:
        return False
    return True


def family(leader: Identity, mark: str, proc: Path = PROC) -> set[Identity]:
    """The leader, its descendants and process group, and whoever else carries its mark.

    Group and descent count only while the leader lives; the mark also finds those it left behind.
    """
    everyone = list(_everyone(proc))
    members: set[int] = set()
    if is_running(leader, proc):
        members = {leader.pid} | {each.pid for each in everyone if each.group == leader.pid}
        while more := {each.pid for each in everyone if each.parent in members} - members:
            members |= more
    members |= {each.pid for each in everyone if each.pid not in members and _carries(each.pid, mark, proc)}
    boot = _boot(proc)
    return {Identity(each.pid, each.started, boot) for each in everyone if each.pid in members}


def _everyone(proc: Path) -> Iterator[Stat]:
    for entry in proc.iterdir():
        if entry.name.isdigit() and (found := stat(int(entry.name), proc)):
            yield found


def _carries(pid: int, mark: str, proc: Path) -> bool:
    try:
        environment = (proc / str(pid) / "environ").read_bytes()
    except OSError:  # gone, or another user's: not ours
        return False
    return f"{MARK}={mark}".encode() in environment.split(b"\0")


def _boot(proc: Path) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text().strip()
