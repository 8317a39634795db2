"""Redrive's workers beside Celery's, on the same servers and queues: `python -m benchmarks.workers`.

Redrive keeps a row for each job and each attempt; `celery` keeps nothing, and `celery+postgres` has its
result backend in the same Postgres. All ack late. The queue is filled before the worker starts; the rounds
take turns, so that a noisy machine is noisy to all alike.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import get_args

from benchmarks.contest import Contender, Run, Servers, Setting, run
from benchmarks.place import fresh_place
from dev.servers import acquire
from tests.support.databases import migrated_template

SETTINGS = ("noop:2x4", "noop:4x16", "nap:4x4")
# Some contenders are slower: they get fewer jobs, so that each run takes a similar time.
SHARE: dict[Contender, float] = {"redrive": 1, "celery": 1, "celery+postgres": 0.25}
TITLES = f"{'':12}{'contender':18}{'jobs/s':>8}{'of celery':>11}{'× c+postgres':>14}"
CPU_TITLES = "".join(f"{title:>10}" for title in ("main", "children", "broker", "database", "MiB"))


def setting(text: str) -> Setting:
    """`task:CONCURRENCYxPREFETCH`."""
    task, _, numbers = text.partition(":")
    concurrency, _, prefetch = numbers.partition("x")
    return Setting(task, int(concurrency), int(prefetch))


def table(results: dict[Setting, dict[Contender, list[Run]]]) -> Iterable[str]:
    """The medians, a line for each contender."""
    yield f"{TITLES}   CPU s per 1,000 jobs:"
    yield f"{'':63}{CPU_TITLES}"
    for each, by_contender in results.items():
        speeds = {name: _median(run.per_second for run in runs) for name, runs in by_contender.items()}
        for name, runs in by_contender.items():
            line = f"{each!s:12}{name:18}{speeds[name]:8,.0f}"
            line += _ratio(speeds[name], speeds.get("celery"), 11)
            line += _ratio(speeds[name], speeds.get("celery+postgres"), 14)
            columns = [[getattr(run.cpu, field) for run in runs] for field in runs[0].cpu._fields]
            line += "".join(
                f"{'-' if None in column else f'{_median(column):.3f}':>10}" for column in columns
            )
            yield f"{line}{_median(run.memory for run in runs):10.0f}"


def _ratio(speed: float, other: float | None, width: int) -> str:
    return f"{'-' if not other else f'{speed / other:.2f}':>{width}}"


def _median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each run as it ends, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", type=setting, default=[setting(each) for each in SETTINGS])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=20_000, help="in each run, of no-op jobs")
    parser.add_argument("--only", action="append", choices=get_args(Contender), help="of the contenders")
    parser.add_argument("--broker-pid", type=int, help="to count its CPU time too")
    parser.add_argument("--database-pid", type=int)
    given = parser.parse_args(arguments)
    contenders = given.only or get_args(Contender)
    results: dict[Setting, dict[Contender, list[Run]]] = defaultdict(lambda: defaultdict(list))
    pids = Servers(given.broker_pid, given.database_pid)
    with (
        acquire("test", print) as servers,
        migrated_template(servers.urls.database) as template,
        tempfile.TemporaryDirectory() as directory,
    ):
        for number in range(given.rounds):
            for each in given.settings:
                for contender in contenders:
                    share = SHARE[contender] if each.task == "noop" else 0.25
                    with fresh_place(servers.urls, template) as place:
                        done = run(contender, each, int(given.jobs * share), place, Path(directory), pids)
                    results[each][contender].append(done)
                    print(f"round {number + 1}: {each} {contender} {done.per_second:,.0f}/s", flush=True)
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
