"""The memory of a process and its children."""

from __future__ import annotations

from pathlib import Path


def rss_bytes(pid: int) -> int:
    """What this process and those it started hold in memory now; shared pages count for each."""
    total = _rss(pid)
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        total += sum(rss_bytes(int(child)) for child in task.read_text().split())
    return total


def peak_bytes(pid: int) -> int:
    """The most that this process alone has held in memory so far."""
    return _field(pid, "VmHWM:")


def _rss(pid: int) -> int:
    return _field(pid, "VmRSS:")


def _field(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(name)[2].split()[0]) * 1024
