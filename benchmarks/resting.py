"""A worker with nothing to do, and one with a long queue: CPU and memory. `python -m benchmarks.resting`."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import cpu
from benchmarks.contest import Setting, start, until
from benchmarks.place import Place, fresh_place
from dev.servers import acquire
from tests.support.databases import migrated_template

SETTING = Setting("noop", 4, 16)
STEPS = 10


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the CPU time at rest, then the memory of the main process as it works off the queue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=30, help="of rest")
    parser.add_argument("--jobs", type=int, default=100_000, help="in the queue at first")
    given = parser.parse_args(arguments)
    with (
        acquire("test", print) as servers,
        migrated_template(servers.urls.database) as template,
        fresh_place(servers.urls, template) as place,
        tempfile.TemporaryDirectory() as directory,
    ):
        _measure(place, Path(directory), given.seconds, given.jobs)


def _measure(place: Place, directory: Path, seconds: int, jobs: int) -> None:
    runs = directory / "runs"
    runs.mkdir()
    worker = start("redrive", SETTING, place, directory, runs)
    try:
        place.load("bench.noop", SETTING.queue, SETTING.concurrency)
        until(runs, SETTING.concurrency, worker)
        pids = (worker.pid, *cpu.children(worker.pid))
        time.sleep(2)  # the last of them is being recorded
        before = sum(cpu.seconds(pid) for pid in pids)
        time.sleep(seconds)
        used = sum(cpu.seconds(pid) for pid in pids) - before
        print(f"at rest: {100 * used / seconds:.2f} % of a core, all {len(pids)} processes")
        print(f"{0:9,} jobs done: {cpu.resident_mib(worker.pid):6.1f} MiB", flush=True)
        place.load("bench.noop", SETTING.queue, jobs)
        for step in range(1, STEPS + 1):
            done = jobs * step // STEPS
            until(runs, SETTING.concurrency + done, worker)
            print(f"{done:9,} jobs done: {cpu.resident_mib(worker.pid):6.1f} MiB", flush=True)
    finally:
        if worker.exit_code is None:
            worker.terminate(60)


if __name__ == "__main__":
    main()
