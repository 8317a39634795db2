"""Waiting for a replay, with a bar on a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from storage import replay_plans
from storage.pool import Pool
from storage.replay_plans import Replay

POLL_S = 0.25
# Plans of 100,000 letters are counted less often.
LARGE, LARGE_POLL_S = 5_000, 1.0
HINT_AFTER_S = 5.0


async def follow(pool: Pool, plan: Replay, timeout_s: float, *, quiet: bool = False) -> Replay:
    """The plan once it is paused, or over but for letters that are no jobs; as it is when the time is up.

    Args:
        timeout_s: so long without anything new.
    """
    loop = asyncio.get_running_loop()
    start = changed = loop.time()
    hinted = False
    poll_s = LARGE_POLL_S if plan.letters > LARGE else POLL_S
    with _bar(plan, quiet) as show:
        while True:
            before, plan = plan, await replay_plans.get(pool, plan.id)
            show(plan)
            # What is no job of ours has no row to tell its fate: it is sent, and stays undecided for long.
            if plan.state == "paused" or plan.figures.undecided == plan.figures.traceless:
                return plan
            now = loop.time()
            if (before.state, before.figures) != (plan.state, plan.figures):
                changed = now
            elif now - changed >= timeout_s:
                click.echo(
                    f"dlq: not settled, and nothing new for {timeout_s:g} s; see: dlq replays {plan.id}",
                    err=True,
                )
                return plan
            if not hinted and now - start > HINT_AFTER_S and not plan.figures.sent:
                click.echo("dlq: nothing takes the replay up so far; is `dlq consume` running?", err=True)
                hinted = True
            await asyncio.sleep(poll_s)


class _Show:
    """What is told of each look at the plan."""

    def __call__(self, plan: Replay) -> None:
        """Off a terminal: nothing."""


class _Bar(_Show):
    def __init__(self, progress: Progress, letters: int) -> None:
        self._progress = progress
        self._task = progress.add_task("sent", total=letters, rate="", eta="", outcomes="")

    def __call__(self, plan: Replay) -> None:
        numbers = plan.figures
        eta_s = numbers.eta_s(plan.rate)
        self._progress.update(
            self._task,
            completed=plan.letters - numbers.unsent,
            rate=f"{numbers.rate_now:g}/s",
            eta="" if eta_s is None or not numbers.unsent else f"{duration(eta_s)} left",
            outcomes=", ".join(f"{count} {outcome}" for outcome, count in numbers.outcomes.items()),
        )


@contextmanager
def _bar(plan: Replay, quiet: bool) -> Iterator[_Show]:
    if quiet or not sys.stderr.isatty():
        yield _Show()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *(TextColumn(f"{{task.fields[{name}]}}") for name in ("rate", "eta", "outcomes")),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Bar(progress, plan.letters)


def duration(seconds: float) -> str:
    """`1:02:03`, `4:05`, `7 s`"""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
