"""`dlq replay` and `dlq replays`"""

from __future__ import annotations

import asyncio
import getpass
import sys

import click

from dlq_consumer import printing
from dlq_consumer.commands.filtering import filter_options
from dlq_consumer.commands.running import Load, fail, with_database
from storage import replays as plans
from storage.letter_filter import LetterFilter
from storage.pool import Pool
from storage.replay_selection import Selection, fit_letters, survey
from storage.replays import MAX_LETTERS, Replay, ReplayConflictError, ReplayItem
from topology import exits

POLL_S = 0.25
HINT_AFTER_S = 5.0


@click.command()
@click.argument("letter_ids", type=click.IntRange(min=1), nargs=-1, metavar="[ID...]")
@filter_options
@click.option("--limit", type=click.IntRange(1, MAX_LETTERS), help="Of a filter: so many, the oldest.")
@click.option("--dry-run", is_flag=True, help="Of a filter: tell what would be sent, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--wait/--no-wait", default=True, help="Wait for the outcome of every letter (default).")
@click.option("--timeout", "timeout_s", type=float, default=60.0, show_default=True, help="Seconds to wait.")
@click.option("--rate", type=float, help="Letters per second.")
@click.option("--note", help="Kept with the replay.")
@click.option("--by", "requested_by", help="Who asks for it (default: the user running this).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@click.pass_obj
def replay(
    load: Load, letter_ids: tuple[int, ...], wanted: LetterFilter, limit: int | None,
    dry_run: bool, yes: bool, wait: bool, timeout_s: float, rate: float | None,
    note: str | None, requested_by: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Send letters out again, to the queue in which they died: by ID, or all that match a filter.

    Of a filter, letters that cannot be replayed are left out; of IDs, one such refuses them all. What is
    chosen is frozen: a letter that comes later is not sent.

    \b
    dlq replay 17 18
    dlq replay --task orders.place --since 2h --dry-run

    Exit 0 only if every letter was published and, with --wait, every job among them succeeded. Messages that
    are not jobs of ours count when they are published. With --no-wait exit 0 says that the plan was made.
    """

    if rate is not None and not rate > 0:
        raise click.BadParameter("it must be above 0", param_hint="--rate")

    by_filter, count = not wanted.is_open, 0
    if by_filter == bool(letter_ids):
        raise click.UsageError("name letters by ID or choose them by a filter: one of the two")
    if not by_filter and (limit is not None or dry_run):
        raise click.UsageError("--limit and --dry-run go with a filter")
    if by_filter:
        selection = with_database(load, lambda pool: survey(pool, wanted))
        count = min(sum(selection.fit.values()), limit or MAX_LETTERS)
        if dry_run and as_json:
            printing.json_line(selection.as_json() | {"to_send": count})
        elif not as_json:
            _print_selection(selection, count)
        if dry_run:
            return
        if count and not yes:
            click.confirm(f"Send {count} letters again?", abort=True, err=True)

    async def run(pool: Pool) -> Replay:
        chosen = list(letter_ids)
        if by_filter and not (chosen := await fit_letters(pool, wanted, limit=count)):
            fail(f"{wanted.words}: no letter that can be replayed")
        try:
            made = await plans.create(
                pool, chosen, requested_by=requested_by or getpass.getuser(), note=note, rate=rate
            )
        except ReplayConflictError as error:
            fail(str(error), exits.CONFLICT)
        return await _settled(pool, made, timeout_s) if wait else made

    done = with_database(load, run)
    if as_json:
        printing.json_line(done.as_json())
    else:
        _print(done)
    if wait and not all(_went_well(item) for item in done.items or ()):
        sys.exit(exits.FAILED)


@click.command()
@click.argument("replay_id", required=False, metavar="[ID]")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.pass_obj
def replays(load: Load, replay_id: str | None, limit: int, as_json: bool) -> None:
    """Replays, the newest first; with an ID, the letters of one."""

    async def read(pool: Pool) -> list[Replay]:
        return [await plans.get(pool, replay_id)] if replay_id else await plans.recent(pool, limit=limit)

    found = with_database(load, read)
    if as_json:
        for plan in found:
            printing.json_line(plan.as_json())
    elif replay_id:
        _print(found[0])
    else:
        heads = ("ID", "STATE", "LETTERS", "BY", "CREATED", "NOTE")
        rows = [(p.id, p.state, p.letters, p.requested_by, p.created_at.isoformat(), p.note) for p in found]
        printing.table(heads, rows)


async def _settled(pool: Pool, plan: Replay, timeout_s: float) -> Replay:
    """The plan once it is closed, or but for letters that are no jobs; as it is when the time is up."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    hinted = False
    while True:
        plan = await plans.get(pool, plan.id)
        items = plan.items or ()
        waited_s = loop.time() - start
        # What is no job of ours has no row to tell its fate: it is sent, and stays undecided for long.
        foreign = [
            item for item in items if item.state == "published" and not item.decided and not item.is_job
        ]
        if plan.state != "running" or (foreign and all(item.decided or item in foreign for item in items)):
            return plan
        if waited_s >= timeout_s:
            click.echo(f"dlq: not settled after {timeout_s:g} s; see: dlq replays {plan.id}", err=True)
            return plan
        if not hinted and waited_s > HINT_AFTER_S and all(item.state == "staged" for item in items):
            click.echo("dlq: nothing takes the replay up so far; is `dlq consume` running?", err=True)
            hinted = True
        await asyncio.sleep(POLL_S)


def _went_well(item: ReplayItem) -> bool:
    return (
        item.state == "published"
        and (item.outcome == "succeeded" or not item.is_job)
        and (item.outcome != "died_again")
    )


def _print_selection(selection: Selection, count: int) -> None:
    printing.table(
        ("LETTERS", "TO", "TASK", "REASON"), [(letters, *of) for of, letters in selection.fit.items()]
    )
    click.echo(f"letters to send: {count}")
    for why, letters in selection.left_out.items():
        click.echo(f"left out: {letters}, {printing.plain(why)}")


def _print(plan: Replay) -> None:
    printing.fields(
        [("replay", plan.id), ("state", plan.state), ("by", plan.requested_by), ("note", plan.note)]
    )
    click.echo()
    heads = ("LETTER", "TO", "JOB", "STATE", "OUTCOME", "NEW LETTER", "DETAIL")
    rows = [
        (i.letter_id, i.target, i.job_id, i.state, i.outcome, i.next_letter_id, i.detail)
        for i in plan.items or ()
    ]
    printing.table(heads, rows)
    for fate, letters in plan.expired.items():
        click.echo(f"expired since: {letters}, {fate}")
